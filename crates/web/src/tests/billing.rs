//! The pages of billing, of the sandbox, of merchants and of costs.
use identity::testing::member;
use kernel::{config::Config, testing::TestJanua};

use super::{act, browser, feature, post_form, visit};

fn below(url: &str) -> String {
    let (_, path) = url.split_once("//").and_then(|(_, rest)| rest.split_once('/')).expect("a URL of ours");
    format!("/{path}")
}

#[tokio::test]
async fn a_plan_is_bought_on_pages_and_a_merchant_is_onboarded() {
    let config = Config::for_tests()
        .with(|tenancy: &mut tenancy::Settings| tenancy.platform_owners = vec!["root@example.com".into()]);
    let t = TestJanua::start_with(config, |config| feature(config).and(commerce::feature(config))).await;
    member(&t, "ada@example.com").await;
    member(&t, "root@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let made = act(&t, &ada, "POST /apps", "/console", &[("name", "Shop"), ("then", "/console/apps/{id}")]).await;
    let app = made.header("location").to_owned();
    let orgs = visit(&t, "/user/orgs", &ada).await;
    let org = orgs.body["orgs"][0]["id"].as_str().expect("an organization").to_owned();
    let root = format!("/console/orgs/{org}/billing");
    let page = visit(&t, &root, &ada).await;
    assert!(
        page.status == 200 && page.text.contains("20.00 USD") && page.text.contains("No invoices yet"),
        "{}",
        page.text
    );
    let sent = post_form(&t, &format!("{root}/checkout"), &[("price", "pro month")], &ada).await;
    assert_eq!(sent.status, 303, "{}", sent.text);
    let checkout = below(sent.header("location"));
    let page = visit(&t, &checkout, "").await;
    assert!(page.status == 200 && page.text.contains("Test: no money moves"), "{}", page.text);
    let refused = post_form(&t, &checkout, &[("action", "pay"), ("card", "5555555555554444")], "").await;
    assert!(
        refused.status == 400 && refused.text.contains("not a test card") && !refused.text.contains("5555"),
        "{}",
        refused.text
    );
    let paid = post_form(&t, &checkout, &[("action", "pay"), ("card", "4242424242424242")], "").await;
    assert_eq!(paid.status, 303, "{}", paid.text);
    assert!(paid.header("location").ends_with("checkout=done"));
    t.run_jobs().await;
    let page = visit(&t, &below(paid.header("location")), &ada).await;
    assert!(
        page.text.contains("Thank you") && page.text.contains("Current plan") && page.text.contains("SBX-"),
        "{}",
        page.text
    );
    let sent = post_form(&t, &format!("{root}/portal"), &[], &ada).await;
    let portal = below(sent.header("location"));
    let page = post_form(&t, &portal, &[("action", "cancel")], "").await;
    assert!(page.status == 200 && page.text.contains("Keep the plan"), "{}", page.text);
    t.run_jobs().await;
    assert!(visit(&t, &root, &ada).await.text.contains("Ends"));

    let page = visit(&t, &format!("{app}/merchants?new=merchant"), &ada).await;
    assert!(page.status == 200 && page.text.contains("No merchants yet"), "{}", page.text);
    let new = [("businessName", "Berta's <Bakery>"), ("country", "DE")];
    let sent = post_form(&t, &format!("{app}/merchants/begin"), &new, &ada).await;
    let onboarding = below(sent.header("location"));
    assert!(visit(&t, &onboarding, "").await.text.contains("Be rejected"));
    let done = post_form(&t, &onboarding, &[("action", "complete")], "").await;
    assert_eq!(done.status, 303, "{}", done.text);
    let back = visit(&t, &below(done.header("location")), &ada).await;
    assert_eq!(back.status, 303, "{}", back.text);
    t.run_jobs().await;
    let page = visit(&t, &format!("{app}/merchants"), &ada).await;
    assert!(page.text.contains("Open account") && page.text.contains("Berta&#x27;s &lt;Bakery&gt;"), "{}", page.text);
    let page = visit(&t, &format!("{app}/billing"), &ada).await;
    assert!(page.status == 200 && page.text.contains("Connect app to billing"), "{}", page.text);

    let owner = browser(&t, "root@example.com").await;
    let page = visit(&t, "/console/platform/costs", &owner).await;
    assert!(page.status == 200 && page.text.contains("Revenue"), "{}", page.text);
    let page = visit(&t, "/console/platform/payment-events", &owner).await;
    assert!(page.status == 200 && page.text.contains("checkout.session.completed"), "{}", page.text);
    assert_eq!(visit(&t, "/console/platform/costs", &ada).await.status, 403);
    t.run_jobs().await;
    t.finish().await;
}
