//! Stars, installs, ratings, search.
use kernel::{clock::Timestamp, http::Key};

use super::actors::*;
use crate::skills::model::{Filter, Skill, Sort};

#[tokio::test]
async fn stars_and_installs_count_once_and_equal_their_rows() {
    let t = start().await;
    let _ada = published(&t).await;
    let (bob, eve) = (signed_in(&t, "bob@example.com").await, signed_in(&t, "eve@example.com").await);
    t.happened().await;
    for (person, stars) in [(&bob, 1), (&bob, 1), (&eve, 2)] {
        let starred = person.asks(t.post("/skills/acme.pdf-tools/star")).await;
        assert_eq!((starred.status, &starred.body), (200, &json!({ "starred": true, "stars": stars })));
    }
    let first = bob.asks(t.post("/skills/acme.pdf-tools/install")).await;
    assert_eq!((first.status, &first.body["version"]), (200, &json!("1.0.0")), "{}", first.text);
    assert!(first.body["downloadUrl"].as_str().unwrap().ends_with("/skills/acme.pdf-tools/download?version=1.0.0"));
    assert!(first.body["signature"]["value"].is_string());
    bob.asks(t.post("/skills/acme.pdf-tools/install").json(&json!({}))).await;
    t.expects(&["SKILL_STARRED", "SKILL_STARRED", "SKILL_INSTALLED"]).await;
    let raced =
        kernel::testing::join_all((0..16).map(|_| eve.asks(t.post("/skills/acme.pdf-tools/install")).send())).await;
    assert!(raced.iter().all(|answer| answer.status == 200));
    let shown = bob.asks(t.get("/skills/acme.pdf-tools")).await.body;
    assert_eq!((&shown["stars"], &shown["installs"]), (&json!(2), &json!(2)));
    assert_eq!(
        (&shown["starred"], &shown["installed"], &shown["installedVersion"]),
        (&json!(true), &json!(true), &json!("1.0.0"))
    );
    let installed = bob.asks(t.get("/skills/installed")).await.body;
    assert_eq!(
        (&installed["installed"][0]["slug"], &installed["installed"][0]["revoked"]),
        (&json!("acme.pdf-tools"), &json!(false))
    );
    for path in ["star", "install", "star", "install"] {
        assert_eq!(bob.asks(t.ask(Method::DELETE, &format!("/skills/acme.pdf-tools/{path}"))).await.status, 204);
    }
    let shown = t.get("/skills/acme.pdf-tools").await.body;
    assert_eq!((&shown["stars"], &shown["installs"]), (&json!(1), &json!(1)));
    assert_eq!(count(&t, "SELECT CAST(COUNT(*) AS BIGINT) FROM skill_star").await, 1);
    assert_eq!(bob.asks(t.post("/skills/acme.none/star")).await.status, 404);
    // An account that goes takes what it counted for along.
    let gone = eve.asks(t.ask(Method::DELETE, "/auth/me").json(&json!({ "password": PASSWORD }))).await;
    assert!(gone.status < 300, "{}", gone.text);
    t.run_jobs().await;
    let shown = t.get("/skills/acme.pdf-tools").await.body;
    assert_eq!((&shown["stars"], &shown["installs"]), (&json!(0), &json!(0)));
    t.run_jobs().await;
    t.finish().await;
}

async fn rate(t: &TestJanua, person: &Person, stars: Value) -> Answer {
    let body = json!({ "slug": "acme.pdf-tools", "stars": stars, "comment": "Good." });
    person.asks(t.post("/ratings/submit").json(&body)).await
}

#[tokio::test]
async fn m24_ratings_are_by_people_who_installed_it_one_each() {
    let t = start().await;
    let ada = published(&t).await;
    let (bob, eve) = (signed_in(&t, "bob@example.com").await, signed_in(&t, "eve@example.com").await);
    assert_eq!(rate(&t, &bob, json!(5)).await.refusal(), (403, "not_installed"));
    for person in [&ada, &bob, &eve] {
        person.asks(t.post("/skills/acme.pdf-tools/install")).await;
    }
    assert_eq!(rate(&t, &bob, json!(5)).await.refusal(), (403, "not_installed"), "not for an hour yet");
    t.advance(Duration::from_hours(1));
    let again = async |email: &str| Person::of(&login(&t, email, PASSWORD).await);
    let (ada, bob, eve) = {
        drop((ada, bob, eve));
        (again("ada@example.com").await, again("bob@example.com").await, again("eve@example.com").await)
    };
    assert_eq!(rate(&t, &ada, json!(5)).await.refusal(), (403, "own_skill"));
    for bad in [json!(0), json!(6), json!(4.5), json!("5"), Value::Null] {
        assert_eq!(rate(&t, &bob, bad.clone()).await.refusal(), (400, "invalid"), "{bad}");
    }
    let rated = rate(&t, &bob, json!(5)).await;
    assert_eq!((rated.status, &rated.body["rating"]["stars"]), (200, &json!(5)), "{}", rated.text);
    assert_eq!(rated.body["aggregate"]["histogram"], json!({ "1": 0, "2": 0, "3": 0, "4": 0, "5": 1 }));
    // (10 * 3 + 5) / 11
    assert_eq!(
        (&rated.body["aggregate"]["average"], &rated.body["aggregate"]["score"]),
        (&json!(5.0), &json!(3.181))
    );
    assert_eq!(rate(&t, &bob, json!(1)).await.refusal(), (409, "rated_recently"));
    let raced = kernel::testing::join_all((1..=5).map(|stars| rate(&t, &eve, json!(stars)))).await;
    assert_eq!(raced.iter().filter(|answer| answer.status == 200).count(), 1, "one row");
    t.advance(Duration::from_hours(24));
    let bob = {
        drop(bob);
        again("bob@example.com").await
    };
    assert_eq!(rate(&t, &bob, json!(3)).await.status, 200, "it can be changed after a day");
    let seen = t.get("/ratings/aggregate?slug=acme.pdf-tools").await.body;
    assert_eq!(seen["count"], 2);
    let sql = "SELECT CAST(SUM(stars) AS BIGINT) FROM skill_rating";
    let sum: i64 = (1..=5).map(|n| n * seen["histogram"][n.to_string()].as_i64().unwrap()).sum();
    assert_eq!(count(&t, sql).await, sum, "the histogram is that of the rows");
    assert_eq!(bob.asks(t.ask(Method::DELETE, "/skills/acme.pdf-tools/install")).await.status, 204);
    assert_eq!(t.get("/ratings/aggregate?slug=acme.pdf-tools").await.body["count"], 2, "uninstalling keeps it");
    t.run_jobs().await;
    // (10 * mean + sum) / (10 + 2), where the mean of all skills is drawn towards 3 in the same way.
    let renewed = t.get("/ratings/aggregate?slug=acme.pdf-tools").await.body;
    let mean = (30_000 + 1000 * sum) / 12;
    let score = renewed["score"].as_f64().unwrap() * 1000.0;
    assert_eq!(format!("{score:.0}"), ((10 * mean + 1000 * sum) / 12).to_string(), "{renewed}");
    assert_eq!(t.get("/ratings/aggregate?slug=acme.none").await.status, 404);
    t.finish().await;
}

#[tokio::test]
async fn skills_are_listed_found_and_sorted() {
    let t = start().await;
    let ada = published(&t).await;
    let bob = signed_in(&t, "bob@example.com").await;
    for (name, description) in [
        ("csv-reader", "Reads tables of numbers."),
        ("git-flow", "Branches and releases."),
        ("pdf-forms", "Fills PDF forms."),
    ] {
        let text = format!("---\nname: {name}\ndescription: {description}\nmetadata:\n  tags: {name}\n---\n\nx\n");
        let made = publish(&t, &ada, "?namespace=acme&version=1.0.0", packed(&[("SKILL.md", text.as_bytes())])).await;
        assert_eq!(made.status, 200, "{}", made.text);
        t.advance(Duration::from_secs(1));
    }
    for slug in ["acme.git-flow", "acme.git-flow", "acme.pdf-forms"] {
        bob.asks(t.post(&format!("/skills/{slug}/install"))).await;
    }
    ada.asks(t.post("/skills/acme.git-flow/install")).await;
    t.run_jobs().await;
    let names = async |query: &str| -> Vec<String> {
        let found = t.get(&format!("/skills?{query}")).await;
        assert_eq!(found.status, 200, "{}", found.text);
        found.body["skills"]
            .as_array()
            .unwrap()
            .iter()
            .map(|skill| skill["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names("").await[..2], ["git-flow", "pdf-forms"]);
    assert_eq!(names("sort=recent").await, ["pdf-forms", "git-flow", "csv-reader", "pdf-tools"]);
    assert_eq!(names("sort=rating").await.len(), 4);
    assert_eq!(names("query=pdf").await, ["pdf-forms", "pdf-tools"], "the popular one first");
    assert_eq!(names("query=PDF%20writes").await, ["pdf-tools"]);
    assert_eq!(names("query=bra").await, Vec::<String>::new(), "words of a description are whole");
    assert_eq!(names("query=rea").await, ["csv-reader"], "words of a name begin");
    assert_eq!(names("query=branches%20releases%20git%20flow").await, ["git-flow"]);
    assert_eq!(names("query=acme&sort=recent").await.len(), 4);
    assert_eq!(names("query=acme&sort=rating&limit=2").await.len(), 2);
    assert_eq!(names("tag=files").await, ["pdf-tools"]);
    assert_eq!(names("query=pdf&tag=files").await, ["pdf-tools"]);
    // Both ways to read a tag find the same in the same order.
    let mut tx = t.janua.db.begin().await.unwrap();
    tx.exec(
        "INSERT INTO skill_tag (tag, skill_id) SELECT 'shared', id FROM skill WHERE name <> 'pdf-tools'",
        params![],
    )
    .await
    .unwrap();
    tx.commit().await.unwrap();
    for sort in [Sort::Popular, Sort::Recent, Sort::Rating] {
        let filter = Filter { sort: Some(sort), tag: "shared".into(), ..Filter::default() };
        let top = Key { at: Timestamp(i64::MAX), id: String::new() };
        let [rare, common] = [false, true].map(|is_common| Skill::tagged(&t.janua.db, &filter, is_common, &top, 2));
        let ids = |found: db::Result<Vec<Skill>>| found.unwrap().iter().map(|skill| skill.id).collect::<Vec<_>>();
        let (rare, common) = (ids(rare.await), ids(common.await));
        assert_eq!((rare.len(), &rare), (2, &common), "{sort:?}");
    }
    assert_eq!(names("namespace=acme").await.len(), 4);
    assert_eq!(names("namespace=other").await.len(), 0);
    assert_eq!(names("query=%21%21").await.len(), 0);
    assert_eq!(names("verified=true").await.len(), 0);
    // Page by page, each once.
    for query in ["", "sort=recent", "sort=rating", "query=acme", "query=acme&sort=recent", "namespace=acme"] {
        let (mut seen, mut cursor) = (vec![], String::new());
        loop {
            let page = t.get(&format!("/skills?{query}&limit=1{cursor}")).await.body;
            seen.extend(
                page["skills"].as_array().unwrap().iter().map(|skill| skill["slug"].as_str().unwrap().to_owned()),
            );
            let Some(next) = page["nextCursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        let all: std::collections::BTreeSet<_> = seen.iter().collect();
        assert_eq!((seen.len(), all.len()), (4, 4), "{query}");
    }
    t.finish().await;
}
