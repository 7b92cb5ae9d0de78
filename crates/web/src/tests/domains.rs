//! The pages of domains: buying one, and what it is used for.
use std::time::Duration;

use db::params;
use identity::testing::member;

use super::{act, browser, start, visit};

#[tokio::test]
async fn a_domain_is_found_bought_once_and_followed() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let made = act(&t, &ada, "POST /apps", "/console", &[("name", "Shop"), ("then", "/console/apps/{id}")]).await;
    let (app, id) =
        (made.header("location").to_owned(), made.header("location").rsplit('/').next().unwrap().to_owned());
    let org = t.janua.db.one::<(String,)>("SELECT org_id FROM app", params![]).await.unwrap().0;
    let page = format!("{app}/domains/register");
    assert!(visit(&t, &format!("{app}/domains"), &ada).await.text.contains("Buy a domain"));
    let empty = visit(&t, &page, &ada).await;
    assert!(empty.status == 200 && empty.text.contains("Find a domain"), "{}", empty.text);
    assert!(!empty.text.contains("Purchases"), "{}", empty.text);
    for (name, says) in [
        ("taken-shop.com", "taken-shop.com is taken."),
        ("premium-shop.com", "cannot be bought here"),
        ("away-shop.com", "did not answer"),
        ("not%20a%20name", "Enter a name such as example.com."),
        ("shop.example.com", "Enter a name such as example.com."),
    ] {
        let found = visit(&t, &format!("{page}?domain={name}"), &ada).await;
        assert!(found.status == 200 && found.text.contains(says), "{name}: {}", found.text);
    }
    let search = format!("{page}?domain=new-shop.com&years=2");
    let offer = visit(&t, &search, &ada).await;
    assert!(offer.text.contains("24.00 USD") && offer.text.contains("Buy new-shop.com"), "{}", offer.text);
    let once = offer.text.split("name=\"once\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let then = format!("{page}/{{id}}");
    let right = [
        ("form", "buy"),
        ("once", once.as_str()),
        ("then", then.as_str()),
        ("appId", id.as_str()),
        ("orgId", org.as_str()),
        ("domain", "new-shop.com"),
        ("years:number", "2"),
        ("price.amount:number", "2400"),
        ("price.currency", "USD"),
        ("contact.firstName", "Ada"),
        ("contact.lastName", "Lovelace"),
        ("contact.email", "ada@example.com"),
        ("contact.phone", "+49.15112345678"),
        ("contact.addressLine1", "Street 1"),
        ("contact.city", "Berlin"),
        ("contact.zipCode", "10115"),
        ("contact.countryCode", "DE"),
        ("acceptTerms:flag", "true"),
    ];
    let with = |name: &str, value: &'static str| {
        let mut changed = right.to_vec();
        changed.iter_mut().filter(|(known, _)| *known == name).for_each(|(_, old)| *old = value);
        changed
    };
    let told = act(&t, &ada, "POST /domains/register", &search, &with("contact.phone", "12")).await;
    assert!(told.text.contains("id=\"phone-error\"") && told.text.contains("value=\"Lovelace\""), "{}", told.text);
    let told = act(&t, &ada, "POST /domains/register", &search, &with("price.amount:number", "1")).await;
    assert!(told.text.contains("another price"), "{}", told.text);

    let bought = act(&t, &ada, "POST /domains/register", &search, &right).await;
    let purchase = bought.header("location").split('?').next().unwrap().to_owned();
    assert!(purchase.starts_with(&format!("{page}/")) && !purchase.contains('{'), "{purchase}");
    let told = act(&t, &ada, "POST /domains/register", &search, &right).await;
    assert!(told.text.contains("being registered already"), "sent twice: {}", told.text);
    let begun = visit(&t, &purchase, &ada).await;
    assert!(begun.text.contains("data-live") && begun.text.contains("Submitted"), "{}", begun.text);
    assert!(visit(&t, &format!("{app}/domains"), &ada).await.text.contains("Submitted"));
    t.run_jobs().await;
    t.advance(Duration::from_secs(61));
    t.run_jobs().await;
    let done = visit(&t, &purchase, &ada).await;
    assert!(done.text.contains("Registered") && done.text.contains("Show domain"), "{}", done.text);
    let domain = visit(&t, &format!("{app}/domains/new-shop.com"), &ada).await;
    assert!(domain.status == 200 && domain.text.contains("_janua-challenge.new-shop.com"), "{}", domain.text);
    assert!(visit(&t, &page, &ada).await.text.contains("Purchases"));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn the_page_of_a_domain_shows_all_that_its_proof_is_good_for() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let made = act(&t, &ada, "POST /apps", "/console", &[("name", "Shop"), ("then", "/console/apps/{id}")]).await;
    let (app, id) =
        (made.header("location").to_owned(), made.header("location").rsplit('/').next().unwrap().to_owned());
    let list = format!("{app}/domains");
    let right = [("form", "domain"), ("appId", id.as_str()), ("domain", "shop.example.com")];
    assert_eq!(act(&t, &ada, "POST /domains/onboard", &list, &right).await.status, 303);
    let page = format!("{list}/shop.example.com");
    assert!(!visit(&t, &page, &ada).await.text.contains("Uses of the domain"), "nothing without a proof");
    let active = "UPDATE app_domain SET verified_at = 1, attached_at = 1, status = 'active', status_reason = NULL";
    t.janua.db.exec(active, params![]).await.unwrap();
    let shown = visit(&t, &page, &ada).await;
    for use_of_it in ["Site", "Calls from your pages", "Tokens and MCP servers", "Email", "Passkeys", "Members"] {
        assert!(shown.text.contains(&format!("<b class=\"strong\">{use_of_it}</b>")), "{use_of_it}: {}", shown.text);
    }
    let call = format!("PATCH /apps/{id}/domains/shop.example.com");
    for (wanted, button) in [("true", "Turn off"), ("false", "Turn on")] {
        let sent = act(&t, &ada, &call, &page, &[("form", "passkeys"), ("passkeys:flag", wanted)]).await;
        assert_eq!(sent.status, 303, "{}", sent.text);
        assert!(visit(&t, &page, &ada).await.text.contains(button), "{button}");
    }
    let org = t.janua.db.one::<(String,)>("SELECT org_id FROM app", params![]).await.unwrap().0;
    let settings = format!("/console/orgs/{org}/settings");
    let call = format!("PATCH /org/{org}");
    let sent = act(&t, &ada, &call, &settings, &[("form", "join"), ("autoJoin:flag", "true")]).await;
    assert_eq!(sent.status, 303, "{}", sent.text);
    let saved = visit(&t, &settings, &ada).await;
    assert!(saved.text.contains("name=\"autoJoin:flag\" value=\"true\" checked"), "{}", saved.text);
    t.run_jobs().await;
    t.finish().await;
}
