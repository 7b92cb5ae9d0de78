//! Funnels: the steps from a beginning to a goal, and how far people came within a time.
use kernel::clock::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A kind of tally that is no event: a person was seen.
pub const SEEN: &str = "seen";
/// The same: a second factor was asked for.
pub const SECOND_ASKED: &str = "second_factor_asked";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Funnel {
    SignUp,
    SignIn,
    PasswordReset,
    MagicLink,
}

/// The times within which steps are counted.
pub const WINDOWS: [(&str, i64); 4] =
    [("1h", 3_600_000), ("1d", 86_400_000), ("7d", 7 * 86_400_000), ("30d", 30 * 86_400_000)];

impl Funnel {
    pub const ALL: [Self; 4] = [Self::SignUp, Self::SignIn, Self::PasswordReset, Self::MagicLink];

    pub fn name(self) -> &'static str {
        match self {
            Self::SignUp => "sign_up",
            Self::SignIn => "sign_in",
            Self::PasswordReset => "password_reset",
            Self::MagicLink => "magic_link",
        }
    }

    pub fn read(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|funnel| funnel.name() == name)
    }

    pub fn steps(self) -> &'static [&'static str] {
        match self {
            Self::SignUp => &["created", "verified", "signed_in", "second_factor_or_passkey", "back_on_another_day"],
            Self::SignIn => &["attempt", "first_factor", "second_factor_asked", "session"],
            Self::PasswordReset => &["requested", "reset", "signed_in"],
            Self::MagicLink => &["requested", "signed_in"],
        }
    }

    /// A step that not everybody is asked for. The next one may come without it.
    pub fn is_optional(self, step: usize) -> bool {
        self == Self::SignIn && step == 2
    }

    /// Whether a person may begin again, once a day.
    fn repeats(self) -> bool {
        self != Self::SignUp
    }

    /// The steps that a tally stands for, as bits.
    fn steps_of(self, kind: &str, method: &str) -> u8 {
        match (self, kind) {
            (Self::SignUp, "ACCOUNT_CREATED")
            | (Self::SignIn, "SIGN_IN_FAILED")
            | (Self::PasswordReset, "PASSWORD_RESET_REQUESTED")
            | (Self::MagicLink, "MAGIC_LINK_REQUESTED") => 0b1,
            (Self::SignUp, "EMAIL_VERIFIED") | (Self::PasswordReset, "PASSWORD_RESET") => 0b10,
            // Whoever comes by a link or through a provider has shown that the email is theirs.
            (Self::SignUp, "SIGNED_IN") => 0b1_0100 | if method == "pwd" { 0 } else { 0b10 },
            (Self::SignUp, "MFA_ENABLED" | "PASSKEY_ADDED") => 0b1000,
            (Self::SignUp, SEEN) => 0b1_0000,
            (Self::SignIn, SECOND_ASKED) => 0b111,
            (Self::SignIn, "SIGNED_IN") => 0b1011,
            (Self::PasswordReset, "SIGNED_IN") => 0b100,
            (Self::MagicLink, "SIGNED_IN") if method == "mail" => 0b10,
            _ => 0,
        }
    }
}

/// A step that a person reached, in what they began on `day`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached {
    pub funnel: Funnel,
    pub day: i64,
    pub step: usize,
    pub at: Timestamp,
}

/// Whether a kind of tally can be a step at all.
pub fn concerns(kind: &str, method: &str) -> bool {
    Funnel::ALL.into_iter().any(|funnel| funnel.steps_of(kind, method) != 0)
}

/// The steps that a tally adds to those that a person has reached. They are in order: a step counts after the one before it,
/// within thirty days of the first.
pub fn advance(reached: &[Reached], kind: &str, method: &str, day: i64, at: Timestamp) -> Vec<Reached> {
    let mut new = vec![];
    for funnel in Funnel::ALL {
        let bits = funnel.steps_of(kind, method);
        if bits == 0 {
            continue;
        }
        let own = || reached.iter().filter(move |one| one.funnel == funnel);
        let mut began = own().filter(|one| one.step == 0).max_by_key(|one| one.day).copied();
        let mut top = began.and_then(|began| own().filter(|one| one.day == began.day).map(|one| one.step).max());
        if bits & 1 == 1 && began.is_none_or(|began| funnel.repeats() && began.day < day) {
            let first = Reached { funnel, day, step: 0, at };
            new.push(first);
            (began, top) = (Some(first), Some(0));
        }
        let (Some(began), Some(top)) = (began, top) else { continue };
        if within(began.at, at).is_none() {
            continue;
        }
        for step in top + 1..funnel.steps().len() {
            let is_same_day = funnel == Funnel::SignUp && step == 4 && day == began.day;
            if bits >> step & 1 == 1 && !is_same_day {
                new.push(Reached { funnel, day: began.day, step, at });
            } else if !funnel.is_optional(step) {
                break;
            }
        }
    }
    new
}

/// The place of the shortest window that a step was reached in; none where it took too long.
pub fn within(began: Timestamp, at: Timestamp) -> Option<usize> {
    let took = at.0.saturating_sub(began.0).max(0);
    WINDOWS.iter().position(|(_, most)| took <= *most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(tallies: &[(&str, &str, i64)]) -> Vec<(Funnel, i64, usize)> {
        let mut reached = vec![];
        for (kind, method, hour) in tallies {
            let new = advance(&reached, kind, method, hour / 24, Timestamp(hour * 3_600_000));
            reached.extend(new);
        }
        reached.iter().map(|one| (one.funnel, one.day, one.step)).collect()
    }

    fn top(tallies: &[(&str, &str, i64)], funnel: Funnel) -> Option<usize> {
        walk(tallies).into_iter().filter(|(of, ..)| *of == funnel).map(|(_, _, step)| step).max()
    }

    #[test]
    fn steps_count_in_their_order_and_in_time() {
        let created = ("ACCOUNT_CREATED", "", 0);
        let verified = ("EMAIL_VERIFIED", "", 1);
        assert_eq!(top(&[verified, created], Funnel::SignUp), Some(0), "verified before it began");
        assert_eq!(top(&[created, verified, ("SIGNED_IN", "pwd", 2)], Funnel::SignUp), Some(2));
        let all = [created, verified, ("SIGNED_IN", "pwd", 2), ("PASSKEY_ADDED", "", 3), (SEEN, "", 5)];
        assert_eq!(top(&all, Funnel::SignUp), Some(3), "back on the same day is not back");
        let all = [created, verified, ("SIGNED_IN", "pwd", 2), ("PASSKEY_ADDED", "", 3), (SEEN, "", 25)];
        assert_eq!(top(&all, Funnel::SignUp), Some(4));
        assert_eq!(top(&[created, ("EMAIL_VERIFIED", "", 31 * 24)], Funnel::SignUp), Some(0), "too late");
        assert_eq!(top(&[created, ("SIGNED_IN", "google", 2)], Funnel::SignUp), Some(2), "proven by the provider");
        assert_eq!(top(&[created, ("SIGNED_IN", "pwd", 2)], Funnel::SignUp), Some(0));
    }

    #[test]
    fn a_second_factor_is_not_asked_of_everybody() {
        let failed = ("SIGN_IN_FAILED", "", 0);
        assert_eq!(top(&[failed], Funnel::SignIn), Some(0));
        let steps = walk(&[failed, ("SIGNED_IN", "pwd", 1)]);
        let steps: Vec<usize> = steps.into_iter().filter(|one| one.0 == Funnel::SignIn).map(|one| one.2).collect();
        assert_eq!(steps, [0, 1, 3]);
        assert_eq!(walk(&[(SECOND_ASKED, "", 1), ("SIGNED_IN", "pwd", 1)]).len(), 4);
        let days = walk(&[("SIGNED_IN", "pwd", 1), ("SIGNED_IN", "pwd", 2), ("SIGNED_IN", "pwd", 30)]);
        assert_eq!(days.iter().filter(|(.., step)| *step == 0).count(), 2, "once a day");
    }
}
