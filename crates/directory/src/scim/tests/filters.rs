//! Filters: the whole grammar, the schema's case rules, and nothing that gets out (P60).
use proptest::{prelude::*, strategy::ValueTree as _};

use super::*;
use crate::scim::filter::{Filter, Target};

async fn people() -> Org {
    let o = Org::start().await;
    for (name, given, kind, department) in [
        ("ada@example.com", "Ada", "work", "R&D"),
        ("Bob@example.com", "Bob", "home", "100%_\\"),
        ("eve", "Éve", "work", "x"),
    ] {
        o.user(&json!({
            "userName": name, "externalId": format!("X-{given}"), "displayName": given, "title": "a'b\"c",
            "name": { "givenName": given }, "active": name != "eve",
            "emails": [{ "value": format!("{given}@mail.example"), "type": kind, "primary": true },
                       { "value": format!("second-{given}@mail.example"), "type": "other" }],
            "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User": { "department": department },
        }))
        .await;
    }
    o
}

const ALL: [&str; 4] = ["Bob@example.com", "ada@example.com", "eve", "owner@example.com"];

#[tokio::test]
async fn p60_the_whole_grammar_finds_who_it_says() {
    let o = people().await;
    let table: &[(&str, &[&str])] = &[
        (r#"userName eq "ADA@example.com""#, &["ada@example.com"]),
        (r#"USERNAME Eq "bob@EXAMPLE.com""#, &["Bob@example.com"]),
        (r#"urn:ietf:params:scim:schemas:core:2.0:User:userName eq "eve""#, &["eve"]),
        (r#"externalId eq "X-Ada""#, &["ada@example.com"]),
        (r#"externalId eq "x-ada""#, &[]),
        (r#"externalId sw "X-B""#, &["Bob@example.com"]),
        (r#"externalId co "-A""#, &["ada@example.com"]),
        (r#"externalId co "-a""#, &[]),
        (r#"userName co "EXAMPLE""#, &["Bob@example.com", "ada@example.com", "owner@example.com"]),
        (r#"userName sw "b""#, &["Bob@example.com"]),
        (r#"userName ew ".COM""#, &["Bob@example.com", "ada@example.com", "owner@example.com"]),
        (r#"userName ew "this is much longer than any of them""#, &[]),
        (r#"displayName eq "éVE""#, &["eve"]),
        (r#"name.givenName eq "ada""#, &["ada@example.com"]),
        ("name pr", &["Bob@example.com", "ada@example.com", "eve"]),
        ("externalId pr", &["Bob@example.com", "ada@example.com", "eve"]),
        ("not (externalId pr)", &["owner@example.com"]),
        ("externalId eq null", &["owner@example.com"]),
        (r#"externalId ne "X-Ada""#, &["Bob@example.com", "eve", "owner@example.com"]),
        ("active eq false", &["eve"]),
        (r#"active eq "True" and externalId pr"#, &["Bob@example.com", "ada@example.com"]),
        (r#"emails eq "ada@mail.example""#, &["ada@example.com"]),
        (r#"emails.value co "second-""#, &["Bob@example.com", "ada@example.com", "eve"]),
        (r#"emails[type eq "work"]"#, &["ada@example.com", "eve", "owner@example.com"]),
        (r#"emails[type eq "WORK" and value sw "ada@"]"#, &["ada@example.com"]),
        (r#"emails[type eq "other" and value sw "ada@"]"#, &[]),
        (r#"emails[type eq "work" and not (value co "mail")]"#, &["owner@example.com"]),
        (r#"emails[primary eq true and type eq "home"]"#, &["Bob@example.com"]),
        ("emails[display pr]", &[]),
        (
            r#"emails pr and active eq true and (userName sw "a" or userName sw "o")"#,
            &["ada@example.com", "owner@example.com"],
        ),
        // `and` binds tighter than `or`.
        (r#"userName eq "eve" or userName sw "a" and active eq false"#, &["eve"]),
        (r#"(userName eq "eve" or userName sw "a") and active eq true"#, &["ada@example.com"]),
        (r#"urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:department eq "r&d""#, &["ada@example.com"]),
        (r#"roles eq "owner""#, &["owner@example.com"]),
        (r#"schemas eq "urn:ietf:params:scim:schemas:core:2.0:User""#, &ALL),
        (r#"schemas eq "urn:ietf:params:scim:schemas:core:2.0:Group""#, &[]),
        (
            r#"schemas eq "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User""#,
            &["Bob@example.com", "ada@example.com", "eve"],
        ),
        (r#"not (schemas co ":enterprise:")"#, &["owner@example.com"]),
        ("schemas pr", &ALL),
        (r#"meta.created ge "2026-01-31T10:00:00Z""#, &ALL),
        (r#"meta.lastModified lt "2026-01-31T10:00:00Z""#, &[]),
        (r#"userName gt "b" and userName lt "f""#, &["Bob@example.com", "eve"]),
        // Characters that mean something elsewhere mean themselves here.
        (r#"urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:department co "%""#, &["Bob@example.com"]),
        (r#"urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:department ew "_\\""#, &["Bob@example.com"]),
        (r#"userName co "%""#, &[]),
        (r#"userName sw "_""#, &[]),
        (r#"title eq "a'b\"c""#, &["Bob@example.com", "ada@example.com", "eve"]),
        (r#"userName eq "x' OR '1'='1""#, &[]),
        (r#"userName eq "x\" or 1 eq 1""#, &[]),
    ];
    for (filter, wanted) in table {
        assert_eq!(o.found(filter).await, *wanted, "{filter}");
        // The same in the body of a search.
        let body = json!({ "schemas": ["urn:ietf:params:scim:api:messages:2.0:SearchRequest"], "filter": filter });
        let searched = o.send("POST", "/Users/.search", &body).await;
        assert_eq!(searched.body["totalResults"], json!(wanted.len()), "{filter}");
    }
    o.finish().await;
}

#[tokio::test]
async fn an_empty_text_is_not_present() {
    let o = Org::start().await;
    o.user(&json!({ "userName": "empty", "title": "", "name": { "givenName": "" },
        "emails": [{ "value": "e@mail.example", "display": "" }] }))
        .await;
    o.user(&json!({ "userName": "full", "title": "Dr", "name": { "givenName": "F" },
        "emails": [{ "value": "f@mail.example", "display": "F" }] }))
        .await;
    for part in ["title pr", "name pr", "name.givenName pr", "emails.display pr", "emails[display pr]"] {
        assert_eq!(o.found(part).await, ["full"], "{part}");
    }
    assert_eq!(o.found("title eq null").await, ["empty", "owner@example.com"]);
    assert_eq!(o.found(r#"emails[display eq null] and userName eq "empty""#).await, ["empty"]);
    assert_eq!(o.found(r#"title eq """#).await, ["empty"], "it is there all the same");
    let user = o.get(&format!("/Users?filter={}", encoded(r#"userName eq "empty""#))).await;
    let id = user.body["Resources"][0]["id"].as_str().unwrap().to_owned();
    let change = json!([{ "op": "remove", "path": "emails[display pr]" }]);
    let patched = o.patch(&id, &change).await;
    assert_eq!(patched.body["emails"][0]["value"], "e@mail.example", "a patch chooses by the same rule");
    o.finish().await;
}

#[tokio::test]
async fn what_has_no_value_is_sorted_last_and_backwards_first() {
    let o = Org::start().await;
    for (name, title) in [("a", "Professor"), ("b", ""), ("c", "Doctor")] {
        o.user(&json!({ "userName": name, "title": title, "externalId": title })).await;
    }
    for by in ["title", "externalId"] {
        for (way, wanted) in [
            ("ascending", ["c", "a", "owner@example.com", "b"]),
            ("descending", ["owner@example.com", "b", "a", "c"]),
        ] {
            let sorted = o.get(&format!("/Users?sortBy={by}&sortOrder={way}")).await;
            let names: Vec<_> = sorted.body["Resources"].as_array().unwrap().iter().map(|u| &u["userName"]).collect();
            assert_eq!(names, wanted, "{by} {way}");
        }
    }
    // Pushed groups have the provider's id, the groups of the roles have none.
    let group = json!({ "displayName": "Crew", "externalId": "crew" });
    assert_eq!(o.send("POST", "/Groups", &group).await.status, 201);
    for (way, place) in [("ascending", 0), ("descending", 3)] {
        let sorted = o.get(&format!("/Groups?sortBy=externalId&sortOrder={way}")).await;
        assert_eq!(sorted.body["Resources"][place]["displayName"], "Crew", "{way}: {}", sorted.text);
    }
    for (list, by) in [("Users", "meta.resourceType"), ("Groups", "meta.resourceType"), ("Groups", "schemas")] {
        assert_eq!(o.get(&format!("/{list}?sortBy={by}")).await.status, 200, "{list} by {by}: all are alike");
    }
    let filter = encoded(r#"schemas eq "urn:ietf:params:scim:schemas:core:2.0:Group""#);
    assert_eq!(o.get(&format!("/Groups?filter={filter}")).await.body["totalResults"], 4);
    o.finish().await;
}

#[tokio::test]
async fn p60_what_is_no_filter_is_refused() {
    let o = people().await;
    let deep = format!("{}userName pr{}", "(".repeat(40), ")".repeat(40));
    let long = format!(r#"userName eq "{}""#, "x".repeat(5000));
    let many = vec!["userName pr"; 80].join(" or ");
    for filter in [
        r#"userName eq "x" or 1 eq 1"#,
        "1 eq 1",
        "userName",
        "userName eq",
        "userName eq x",
        r#"userName is "x""#,
        r#"userName eq "x"#,
        r#"userName eq "x" and"#,
        r#"(userName eq "x""#,
        r#"userName eq "x")"#,
        "not userName pr",
        r#"nonsense eq "x""#,
        r#"userName.first eq "x""#,
        r#"emails[nonsense eq "x"]"#,
        r#"emails[type eq "work"#,
        r#"userName[type eq "work"]"#,
        r#"emails[emails[type eq "x"]]"#,
        r#"password eq "x""#,
        "password pr",
        "active gt true",
        r#"active eq "maybe""#,
        r#"meta.created eq "yesterday""#,
        "userName eq {}",
        r#"userName eq "x"; DROP TABLE person"#,
        r#"userName eq "\u0000""#,
        &deep,
        &long,
        &many,
    ] {
        let answer = o.get(&format!("/Users?filter={}", encoded(filter))).await;
        assert_eq!(refused(&answer), (400, "invalidFilter"), "{filter}");
    }
    assert_eq!(refused(&o.get("/Users?sortBy=nonsense").await), (400, "invalidFilter"));
    assert_eq!(refused(&o.get("/Users?filter=%00").await), (400, "invalidSyntax"), "as in any other input");
    o.finish().await;
}

/// Text that looks like a filter, and text that does not.
fn filter_like() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "userName",
            "emails",
            "emails.value",
            "externalId",
            "active",
            "roles",
            "groups",
            "meta.created",
            "id",
            "not",
            "and",
            "or",
            "eq",
            "ne",
            "co",
            "sw",
            "ew",
            "pr",
            "gt",
            "ge",
            "lt",
            "le",
            "(",
            ")",
            "[",
            "]",
            "true",
            "null",
            "\"x\"",
            "\"ada@example.com\"",
            "\"%\"",
            "\"'\"",
            "1",
            "-1.5e3",
            ".",
            ":",
            "$ref",
            "\\",
            "\"",
            "urn:ietf:params:scim:schemas:core:2.0:User:userName",
        ])
        .prop_map(str::to_owned),
        "\\PC{0,8}",
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.join(" "))
}

/// Filters that mean something.
fn meaningful() -> impl Strategy<Value = String> {
    let name =
        prop::sample::select(vec!["userName", "externalId", "emails.value", "displayName", "roles", "id", "title"]);
    let text =
        prop::sample::select(vec!["\"x\"", "\"ada@example.com\"", "\"e\"", "\"%\"", "\"\"", "\"work\"", "\"owner\""]);
    let op = prop::sample::select(vec!["eq", "ne", "co", "sw", "ew", "gt", "ge", "lt", "le"]);
    let leaf = prop_oneof![
        (name.clone(), op.clone(), text.clone()).prop_map(|(name, op, text)| format!("{name} {op} {text}")),
        name.prop_map(|name| format!("{name} pr")),
        (op, text).prop_map(|(op, text)| format!("emails[value {op} {text} or type {op} {text}]")),
    ];
    leaf.prop_recursive(3, 12, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(one, other)| format!("{one} and {other}")),
            (inner.clone(), inner.clone()).prop_map(|(one, other)| format!("({one} or {other})")),
            inner.prop_map(|one| format!("not ({one})")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_the_parser_panic(text in prop_oneof![filter_like(), ".{0,300}", "[\\[\\]()\" a-z]{0,5000}"]) {
        let _ = Filter::parse(&text);
        let _ = Target::parse(&text);
    }
}

/// Every filter there is, asked of one organization, finds nobody of another one, in good time.
#[tokio::test]
async fn no_filter_finds_anybody_elsewhere() {
    let o = people().await;
    let eve = signed_in(&o.t, "mallory@example.com").await;
    let other = id(&make_org(&o.t, &eve, "Evil").await).to_owned();
    let theirs = make_token(&o.t, &eve, &other).await;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut understood = 0;
    for number in 0..400 {
        let means_something = number % 2 == 0;
        let text = if means_something {
            meaningful().new_tree(&mut runner).unwrap().current()
        } else {
            filter_like().new_tree(&mut runner).unwrap().current()
        };
        // A negation, so that what finds little finds much.
        for text in [text.clone(), format!("not ({text})")] {
            let path = format!("/scim/v2/Users?filter={}", encoded(&text));
            let ask = o.t.get(&path).header("authorization", &format!("Bearer {theirs}"));
            let answer =
                tokio::time::timeout(std::time::Duration::from_secs(5), ask.send()).await.expect("in good time");
            assert!(matches!(answer.status, 200 | 400), "{text}: {}", answer.text);
            assert!(answer.status == 200 || !means_something, "{text}: {}", answer.text);
            understood += usize::from(answer.status == 200 && !text.trim().is_empty());
            for found in answer.body["Resources"].as_array().into_iter().flatten() {
                assert_eq!(found["userName"], "mallory@example.com", "{text}");
            }
        }
    }
    for text in [
        r#"userName eq "ada@example.com""#,
        r#"not (userName eq "x")"#,
        "id pr or userName pr",
        "emails pr",
        r#"emails[type eq "work"]"#,
        "groups pr or userName pr",
    ] {
        let path = format!("/scim/v2/Users?filter={}", encoded(text));
        let answer = o.t.get(&path).header("authorization", &format!("Bearer {theirs}")).await;
        assert!(answer.body["totalResults"].as_i64().unwrap() <= 1, "{text}: {}", answer.text);
        understood += 1;
    }
    assert!(understood > 400, "half of them are filters: {understood}");
    o.finish().await;
}
