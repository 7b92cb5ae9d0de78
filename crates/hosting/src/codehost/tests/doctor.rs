//! What `janua doctor` finds at the code host.
use kernel::config::Config;

use super::*;
use crate::{
    codehost::{Settings, doctor::check},
    doctor::Finding,
};

/// The words, and whether all is well.
async fn finding(config: &Config) -> (bool, String) {
    match check(config).await {
        Finding::Fine(text) => (true, text),
        Finding::Odd(text) | Finding::Wrong(text) => (false, text),
    }
}

/// Makes a setting wrong, some with what belongs to another app.
type Mistake = fn(&mut Settings, &GitHub);

#[tokio::test]
async fn the_doctor_looks_at_the_settings_the_key_and_the_host() {
    let github = GitHub::start().await;
    assert!(finding(&Config::for_tests()).await.0, "none is no mistake");
    assert_eq!(finding(&github.config()).await, (true, format!("the app janua-test at {}/", github.url())));
    let other = GitHub::start().await;
    let odd: [(&str, Mistake); 8] = [
        ("codehost_app_id must be set, too", |settings, _| settings.codehost_app_id = None),
        ("does not belong to the app", |settings, _| settings.codehost_app_id = Some("12".into())),
        ("does not belong to the app", |settings, other| settings.codehost_private_key = Some(other.key_file())),
        ("codehost_private_key /none", |settings, _| settings.codehost_private_key = Some("/none".into())),
        ("codehost_app_slug says other", |settings, _| settings.codehost_app_slug = Some("other".into())),
        ("codehost_client_id is not", |settings, _| settings.codehost_client_id = Some("other".into())),
        ("Check codehost_api_url", |settings, _| settings.codehost_api_url = "http://127.0.0.1:9".parse().unwrap()),
        ("Check codehost_url", |settings, _| settings.codehost_url = "http://127.0.0.1:9".parse().unwrap()),
    ];
    for (words, break_it) in odd {
        let config = github.config().with(|settings: &mut Settings| break_it(settings, &other));
        let (is_well, said) = finding(&config).await;
        assert!(!is_well && said.contains(words), "{words}: {said}");
    }
    // A server that is no code host.
    let config = github.config().with(|settings: &mut Settings| {
        settings.codehost_api_url = format!("{}/elsewhere", github.url()).parse().unwrap();
    });
    assert!(finding(&config).await.1.contains("it is no API of a code host"));
    github.lock().away = true;
    assert!(finding(&github.config()).await.1.contains("does not answer"));
}
