//! Files of an app's users, deployments, the edge that serves them, domains and certificates.
pub mod certificates;
pub mod doctor;
mod domains;
mod registrar;
mod settings;

use kernel::{
    config::{Config, Listed},
    feature::{Feature, Part},
};

pub use self::settings::{Settings, TlsSource};

pub const PART: Part = Part { settings: &[Listed::of::<Settings>()], feature };

pub fn feature(config: &Config) -> Feature {
    domains::feature(config).and(certificates::feature()).and(registrar::feature(config))
}

#[cfg(test)]
mod tests {
    //! What the tests of this crate share.
    use identity::testing::Person;
    use kernel::{config::Config, feature::Feature, testing::TestJanua};
    use serde_json::{Value, json};

    pub fn feature(config: &Config) -> Feature {
        identity::testing::feature(config)
            .and(directory::feature(config))
            .and(workshop::feature(config))
            .and(crate::feature(config))
    }

    pub async fn make_app(t: &TestJanua, person: &Person, name: &str) -> Value {
        let made = person.asks(t.post("/apps").json(&json!({ "name": name }))).await;
        assert_eq!(made.status, 200, "{}", made.text);
        made.body
    }

    pub fn id(value: &Value) -> &str {
        value["id"].as_str().expect("an id")
    }
}
