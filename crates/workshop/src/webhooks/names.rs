//! The values of `events`: what a webhook may listen to.
use kernel::Janua;
use tenancy::events;

pub const ALL: &str = "*";
pub const AUDIT: &str = "audit.*";

/// What can be listened to by its own name: the events that features declare with one.
pub fn named(janua: &Janua) -> impl Iterator<Item = &'static str> {
    janua.declared::<events::Kind>().iter().filter_map(|kind| kind.webhook)
}

pub fn is_named(janua: &Janua, value: &str) -> bool {
    named(janua).any(|name| name == value)
}

pub fn is_known(janua: &Janua, value: &str) -> bool {
    value == ALL || value == AUDIT || is_named(janua, value)
}

/// What an audit event is called when it is delivered.
pub fn of_audit(kind: &str) -> String {
    format!("audit.{kind}")
}

/// The names under which an event goes to whoever listens to `value`.
pub fn heard_as(value: &str, named: Option<&str>, kind: &str) -> Vec<String> {
    let (named, audit) = (named.map(str::to_owned), of_audit(kind));
    match value {
        ALL => named.into_iter().chain([audit]).collect(),
        AUDIT => vec![audit],
        _ => named.into_iter().filter(|name| name == value).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_hears_both_names_and_others_hear_their_own() {
        let heard = |value| heard_as(value, Some("user.created"), "ACCOUNT_CREATED");
        assert_eq!(heard(ALL), ["user.created", "audit.ACCOUNT_CREATED"]);
        assert_eq!(heard(AUDIT), ["audit.ACCOUNT_CREATED"]);
        assert_eq!(heard("user.created"), ["user.created"]);
        assert!(heard("user.signed_in").is_empty());
        assert_eq!(heard_as(ALL, None, "APP_CREATED"), ["audit.APP_CREATED"]);
    }
}
