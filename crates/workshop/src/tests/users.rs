//! Finding some of an app's people among all of them.
use std::time::Duration;

use identity::testing::member;

use super::*;

struct Place {
    t: TestJanua,
    ada: Person,
    app: String,
    key: String,
}

impl Place {
    async fn make() -> Self {
        let t = start().await;
        let ada = signed_in(&t, "ada@example.com").await;
        let app = id(&make_app(&t, &ada, "App").await).to_owned();
        let key = make_key(&t, &ada, &app, "publishable", "live").await["value"].as_str().unwrap().to_owned();
        Self { t, ada, app, key }
    }

    /// Somebody with a name comes in through the app.
    async fn comes(&self, email: &str, name: &str) -> Person {
        member(&self.t, email).await;
        let person = Person::of(&login_with(&self.t, email, &self.key).await);
        self.is_called(&person, name).await;
        person
    }

    async fn is_called(&self, person: &Person, name: &str) {
        let answer = person.asks(self.t.ask(Method::PATCH, "/user/profile").json(&json!({ "name": name }))).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }

    /// The names on all pages, and how many pages there were.
    async fn found(&self, search: &str, limit: u32) -> (Vec<String>, usize) {
        let path = format!("/apps/{}/users?search={search}&limit={limit}", self.app);
        let (mut names, mut pages, mut cursor) = (vec![], 0, String::new());
        loop {
            let page = self.ada.asks(self.t.get(&format!("{path}{cursor}"))).await;
            assert_eq!(page.status, 200, "{}", page.text);
            pages += 1;
            names.extend(
                page.body["users"].as_array().unwrap().iter().map(|user| user["name"].as_str().unwrap().to_owned()),
            );
            match page.body["nextCursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return (names, pages),
            }
        }
    }

    async fn finish(self) {
        self.t.run_jobs().await;
        self.t.finish().await;
    }
}

#[tokio::test]
async fn people_are_found_by_the_beginnings_of_their_words_each_once_on_all_pages() {
    let place = Place::make().await;
    for (email, name) in [
        ("zed@example.com", "Katherine Li"),
        ("yan@example.com", "Katherine Kovač-Kant"),
        ("xan@example.com", "Ona Katz"),
        ("kat@example.com", "Somebody Else"),
    ] {
        place.comes(email, name).await;
    }
    // By the word that was found: `kant`, `kat@…`, `katherine`, `katz`; who has two of them comes once.
    let all = ["Katherine Kovač-Kant", "Somebody Else", "Katherine Li", "Ona Katz"];
    assert_eq!(place.found("KA", 50).await, (all.map(str::to_owned).to_vec(), 1));
    assert_eq!(place.found("KA", 1).await, (all.map(str::to_owned).to_vec(), 4), "the same, one by one");
    for (search, names) in [
        ("katherine%20li", vec!["Katherine Li"]),
        ("li%20katherine", vec!["Katherine Li"]),
        ("k%20katherine%20kov", vec!["Katherine Kovač-Kant"]),
        ("kova%C4%8D", vec!["Katherine Kovač-Kant"]),
        ("KOVA%C4%8C-k", vec!["Katherine Kovač-Kant"]),
        ("li%20ona", vec![]),
        ("atherine", vec![]),
        ("zed@exam", vec!["Katherine Li"]),
    ] {
        assert_eq!(place.found(search, 1).await.0, names, "{search}");
    }
    // A cursor is good for the search it came from.
    let path = format!("/apps/{}/users?limit=1", place.app);
    let first = place.ada.asks(place.t.get(&format!("{path}&search=ka"))).await;
    let cursor = first.body["nextCursor"].as_str().unwrap();
    let elsewhere = place.ada.asks(place.t.get(&format!("{path}&search=ona&cursor={cursor}"))).await;
    assert_eq!(elsewhere.status, 400, "{}", elsewhere.text);
    place.finish().await;
}

#[tokio::test]
async fn who_changes_their_name_is_found_by_the_new_one_and_who_is_gone_by_none() {
    let place = Place::make().await;
    let bob = place.comes("bob@example.com", "Bob Stone").await;
    assert_eq!(place.found("stone", 50).await.0, ["Bob Stone"]);
    place.is_called(&bob, "Bob Marsh").await;
    assert_eq!(place.found("stone", 50).await.0, [""; 0]);
    assert_eq!(place.found("marsh", 50).await.0, ["Bob Marsh"]);
    let count = "SELECT CAST(COUNT(*) AS BIGINT) FROM app_user_word";
    assert_eq!(place.t.janua.db.one::<(i64,)>(count, vec![]).await.unwrap(), (3,), "bob, marsh and the address");
    place.t.janua.db.exec("DELETE FROM account WHERE email_key = 'bob@example.com'", vec![]).await.unwrap();
    assert_eq!(place.t.janua.db.one::<(i64,)>(count, vec![]).await.unwrap(), (0,), "nothing is kept of them");
    place.finish().await;
}

#[tokio::test]
async fn who_came_before_there_were_words_is_gone_through_and_only_what_the_app_may_know_is_kept() {
    let place = Place::make().await;
    place.comes("bob@example.com", "Bob Stone").await;
    let (t, db) = (&place.t, &place.t.janua.db);
    for sql in ["DELETE FROM app_user_word", "UPDATE app_user SET has_words = FALSE"] {
        db.exec(sql, vec![]).await.unwrap();
    }
    assert_eq!(place.found("stone", 50).await.0, [""; 0]);
    t.advance(Duration::from_hours(2));
    t.run_jobs().await;
    let ada = Person::of(&identity::testing::login(t, "ada@example.com", identity::testing::PASSWORD).await);
    let place = Place { ada, ..place };
    assert_eq!(place.found("stone", 50).await.0, ["Bob Stone"]);
    // They let the app know their address and nothing else.
    let db = &place.t.janua.db;
    for sql in ["UPDATE app_user SET has_words = FALSE, scopes = 'openid email'"] {
        db.exec(sql, vec![]).await.unwrap();
    }
    place.t.advance(Duration::from_hours(2));
    place.t.run_jobs().await;
    let ada = Person::of(&identity::testing::login(&place.t, "ada@example.com", identity::testing::PASSWORD).await);
    let place = Place { ada, ..place };
    assert_eq!(place.found("stone", 50).await.0, [""; 0]);
    assert_eq!(place.found("bob@", 50).await.0, [""], "by the address, without the name");
    place.finish().await;
}
