//! The status page, as a browser gets it; and the JSON, as everybody else does.
use std::time::Duration;

use kernel::transact;
use site::status::incidents::{self, Impact, Report, Stage};

use super::*;

const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

async fn page(t: &TestJanua) -> Answer {
    let page = t.get("/status").header("accept", BROWSER).await;
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"), "{}", page.text);
    assert!(!page.text.contains("style="), "the policy allows no style in a tag");
    page
}

fn varies(answer: &Answer) -> String {
    let lines = answer.headers.get_all("vary").iter().map(|value| value.to_str().unwrap());
    lines.collect::<Vec<_>>().join(", ")
}

#[tokio::test]
async fn a_browser_gets_a_page_and_a_program_what_it_always_got() {
    let t = TestJanua::start(whole).await;
    t.run_jobs().await;
    for accept in ["*/*", "application/json", "application/json, text/html;q=0.5"] {
        let answer = t.get("/status").header("accept", accept).await;
        assert_eq!(answer.header("content-type"), "application/json", "{accept}");
        assert_eq!((answer.status, &answer.body["status"]), (200, &json!("operational")));
        assert!(varies(&answer).contains("accept"), "a cache keeps both apart");
    }
    assert_eq!(t.get("/status").await.body["components"].as_array().unwrap().len(), 4);
    let page = page(&t).await;
    assert!(varies(&page).contains("accept"));
    assert!(page.header("content-security-policy").contains("default-src 'none'"));
    assert!(
        page.text.contains("All systems operational") && page.text.contains("datetime=\"2026-01-31T10:00:00.000Z\"")
    );
    let described =
        &t.janua.description.get().unwrap().value()["paths"]["/status"]["get"]["responses"]["200"]["content"];
    assert!(described["text/html"].is_object() && described["application/json"].is_object(), "{described}");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn every_day_has_a_bar_and_a_day_without_data_says_so() {
    let t = TestJanua::start(whole).await;
    let before = page(&t).await;
    assert!(before.text.contains("No data yet") && before.text.contains("No incidents"));
    t.run_jobs().await;
    t.mailbox.set_down(true);
    t.advance(Duration::from_mins(1));
    t.run_jobs().await;
    let seen = page(&t).await;
    assert_eq!(seen.text.matches("<rect ").count(), 4 * 90);
    assert_eq!(seen.text.matches("class=\"none\"").count(), 4 * 89);
    assert!(seen.text.contains("<title>2026-01-30: no data</title>"), "honestly");
    assert!(seen.text.contains("<title>2026-01-31: 50%</title>"), "{}", seen.text);
    assert_eq!((seen.text.matches("class=\"down\"").count(), seen.text.matches("class=\"up\"").count()), (1, 3));
    assert!(seen.text.contains("Some systems are down") && seen.text.contains("not working at the moment"));
    assert!(seen.text.contains("class=\"sign outage\""), "by its shape");
    assert!(
        seen.text.contains("<th scope=\"row\">2026-01-31</th><td data-name=\"Uptime\">50"),
        "for who cannot see the bars"
    );

    // Ninety days later that day is forgotten, and the days between have no data but for the service as a whole.
    t.mailbox.set_down(false);
    t.advance(Duration::from_hours(90 * 24));
    t.run_jobs().await;
    let later = page(&t).await;
    assert!(!later.text.contains("2026-01-31"), "what is not kept is not shown");
    assert_eq!(later.text.matches("<rect ").count(), 4 * 90);
    assert_eq!(later.text.matches("class=\"none\"").count(), 3 * 89);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn incidents_are_told_as_they_were_written_and_do_nothing_to_the_page() {
    let t = TestJanua::start(whole).await;
    t.run_jobs().await;
    let report = |title: &str| Report {
        title: Some(title.to_owned()),
        impact: Some(Impact::Major),
        components: Some(vec!["mail".into()]),
        message: "<script>alert(1)</script>\nsecond line".into(),
        stage: None,
    };
    let over = transact!(t.janua, async |tx| incidents::open(tx, &t.janua, report("Old & over")).await).unwrap();
    t.advance(Duration::from_mins(5));
    let end = Report { stage: Some(Stage::Resolved), message: "All is well.".into(), ..Report::default() };
    transact!(t.janua, async |tx| incidents::update(tx, &t.janua, over.id, end.clone()).await).unwrap();
    transact!(t.janua, async |tx| incidents::open(tx, &t.janua, report("<img src=x>")).await).unwrap();
    let seen = page(&t).await;
    assert!(!seen.text.contains("<script>alert") && !seen.text.contains("<img"), "{}", seen.text);
    assert!(seen.text.contains("Some systems are degraded"));
    let (open, past) = seen.text.split_once("id=\"past\"").unwrap();
    assert!(open.contains("&lt;img src=x&gt;") && open.contains("Investigating"));
    assert!(past.contains("Old &amp; over") && past.contains("All is well.") && past.contains("Resolved"));
    assert!(past.find("All is well.") < past.find("second line"), "the newest word first");
    assert!(!open.contains("Old &amp; over") && !past.contains("&lt;img"), "each in its place");

    t.advance(Duration::from_hours(91 * 24));
    let later = page(&t).await;
    assert!(later.text.contains("&lt;img") && !later.text.contains("Old &amp; over"), "what is open stays");
    assert!(later.text.contains("No other incidents"));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn the_console_is_drawn_from_what_programs_get() {
    let config = Config::for_tests()
        .with(|tenancy: &mut tenancy::Settings| tenancy.platform_owners = vec!["root@example.com".into()]);
    let t = TestJanua::start_with(config, whole).await;
    identity::testing::member(&t, "root@example.com").await;
    let root = browser(&t, "root@example.com").await;
    let page = t.get("/console/platform/incidents").header("cookie", &root).header("accept", BROWSER).await;
    assert_eq!(page.status, 200, "{}", page.text);
    assert!(page.text.contains("No incidents"), "{}", page.text);
    t.run_jobs().await;
    t.finish().await;
}
