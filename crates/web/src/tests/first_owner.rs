//! The first owner of a new installation.
use identity::first_owner::link;
use kernel::{config::Config, testing::TestJanua};

use super::{base, browser, cookies, feature, form, start, submit, visit};

const NEW: [(&str, &str); 3] =
    [("name", "Root"), ("email", "root@example.com"), ("password", "correct horse battery staple")];

async fn token(t: &TestJanua) -> String {
    let link = link(&t.janua).await.unwrap().expect("nobody was first");
    link.strip_prefix(&format!("{}/first-owner?token=", base(t))).expect("a link of ours").to_owned()
}

#[tokio::test]
async fn whoever_has_the_link_runs_the_platform_and_nobody_after_them() {
    let t = start().await;
    let token = token(&t).await;
    let page = t.get(&format!("/first-owner?token={token}")).await;
    assert_eq!(page.status, 200, "{}", page.text);
    assert_eq!(t.get("/first-owner?token=guessed").await.status, 410);
    let fields: Vec<_> = [("token", token.as_str())].into_iter().chain(NEW).collect();
    let weak: Vec<_> =
        fields.iter().map(|(name, value)| (*name, if *name == "password" { "12345678" } else { value })).collect();
    let refused = submit(&t, "/first-owner", &weak, "").await;
    assert_eq!(refused.status, 400, "{}", refused.text);
    let made = submit(&t, "/first-owner", &fields, "").await;
    assert_eq!((made.status, made.header("location")), (303, "/console"), "{}", made.text);
    t.expects(&["ACCOUNT_CREATED", "PLATFORM_OWNER_MADE", "SIGNED_IN"]).await;
    let root = cookies(&made);
    assert!(visit(&t, "/console", &root).await.text.contains("href=\"/console/platform\""));
    for page in ["/console/platform", "/console/platform/abuse", "/console/outbox"] {
        assert_eq!(visit(&t, page, &root).await.status, 200, "{page}: {}", visit(&t, page, &root).await.text);
    }
    assert!(link(&t.janua).await.unwrap().is_none());
    let again = [("token", token.as_str()), ("name", "Eve"), ("email", "eve@example.com"), NEW[2]];
    assert_eq!(submit(&t, "/first-owner", &again, "").await.status, 410, "the link is used up");
    // Somebody else sees nothing of the platform.
    identity::testing::member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    assert!(!visit(&t, "/console", &ada).await.text.contains("href=\"/console/platform\""));
    for page in ["/console/platform", "/console/platform/abuse", "/console/outbox", "/console/platform/incidents"] {
        assert_eq!(visit(&t, page, &ada).await.status, 403, "{page}");
    }
    for path in ["/admin/queues", "/admin/signing-keys", "/admin/outbox"] {
        assert_eq!(t.get(path).header("cookie", &ada).await.status, 403, "{path}");
    }
    t.finish().await;
}

#[tokio::test]
async fn of_many_at_once_one_is_first() {
    let t = start().await;
    let token = token(&t).await;
    let emails: Vec<String> = (0..8).map(|n| format!("root{n}@example.com")).collect();
    let tries = emails.iter().map(|email| {
        let fields = [("token", token.as_str()), NEW[0], ("email", email.as_str()), NEW[2]];
        let (t, fields) = (&t, fields.to_vec());
        async move { submit(t, "/first-owner", &fields, "").await.status }
    });
    let statuses = futures_util::future::join_all(tries).await;
    assert_eq!(statuses.iter().filter(|status| **status == 303).count(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|status| [303, 410].contains(status)), "{statuses:?}");
    t.finish().await;
}

#[tokio::test]
async fn where_the_settings_name_owners_there_is_no_link() {
    let config = Config::for_tests()
        .with(|tenancy: &mut tenancy::Settings| tenancy.platform_owners = vec!["root@example.com".into()]);
    let t = TestJanua::start_with(config, feature).await;
    assert!(link(&t.janua).await.unwrap().is_none());
    assert_eq!(form(&t, "/first-owner", &NEW, None).await.status, 410);
    t.finish().await;
}
