//! Listeners: a stream that breaks, and one that stays away for long.
use axum::{
    body::{Body, BodyDataStream},
    http::Request,
};
use futures_util::StreamExt as _;
use identity::testing::{PASSWORD, Person, login};

use super::*;

/// A stream of the owner, as a command line reads it.
struct Listening {
    body: BodyDataStream,
    id: String,
    is_resumed: bool,
    /// The last id that came.
    last: String,
}

impl Listening {
    async fn open(t: &TestJanua, shop: &Shop, last: &str) -> Self {
        let request = Request::get(format!("/apps/{}/webhooks/listen", id(&shop.app)))
            .header("authorization", format!("Bearer {}", shop.owner.access))
            .header("accept", "text/event-stream")
            .header("last-event-id", last);
        let from = std::net::SocketAddr::from(([127, 0, 0, 1], 40_000));
        let answer = t.door().handle(from, request.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status(), 200);
        let body = Body::new(answer.into_body()).into_data_stream();
        let mut opened = Self { body, id: String::new(), is_resumed: false, last: String::new() };
        let greeting = opened.read().await.remove(0);
        (opened.id, opened.is_resumed) = (id(&greeting).to_owned(), greeting["resumed"] == true);
        opened
    }

    /// The next events, or none for as long as a heartbeat takes to come.
    async fn read(&mut self) -> Vec<Value> {
        let piece = tokio::time::timeout(Duration::from_secs(3), self.body.next()).await;
        let Ok(Some(Ok(piece))) = piece else { return vec![] };
        let text = String::from_utf8(piece.to_vec()).unwrap();
        if let Some(last) = text.lines().filter_map(|line| line.strip_prefix("id: ")).next_back() {
            last.clone_into(&mut self.last);
        }
        text.lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }

    /// Reports that a delivery arrived.
    async fn report(&self, t: &TestJanua, shop: &Shop, delivery: &Value) {
        let result = json!({ "deliveryId": delivery["deliveryId"], "statusCode": 200, "latencyMs": 1 });
        let path = format!("/apps/{}/webhooks/listen/{}/results", id(&shop.app), self.id);
        let noted = shop.owner.asks(t.post(&path).json(&json!({ "results": [result] }))).await;
        assert_eq!((noted.status, &noted.body["noted"]), (200, &json!(1)), "{}", noted.text);
    }
}

/// The id of the event that a delivery is about.
fn event_of(delivery: &Value) -> String {
    let body: Value = serde_json::from_str(delivery["body"].as_str().unwrap()).unwrap();
    body["eventId"].as_str().or(body["id"].as_str()).unwrap().to_owned()
}

/// Something that happens in the app, for listeners to hear.
async fn rename(t: &TestJanua, shop: &Shop, name: &str) {
    let path = format!("/apps/{}", id(&shop.app));
    let renamed = shop.owner.asks(t.ask(Method::PATCH, &path).json(&json!({ "name": name }))).await;
    assert_eq!(renamed.status, 200, "{}", renamed.text);
    deliver(t).await;
}

async fn later(t: &TestJanua, shop: &mut Shop, by: Duration) {
    t.advance(by);
    t.run_jobs().await;
    shop.owner = Person::of(&login(t, "ada@example.com", PASSWORD).await);
    deliver(t).await;
}

#[tokio::test]
async fn a_listener_that_slept_for_long_gets_what_it_missed_once() {
    let t = start().await;
    let mut shop = Shop::open(&t).await;
    let mut stream = Listening::open(&t, &shop, "").await;
    rename(&t, &shop, "One").await;
    let first = stream.read().await;
    for delivery in &first {
        stream.report(&t, &shop, delivery).await;
    }
    let Listening { id: listener, last, .. } = stream;

    // The laptop sleeps. Some things happen before the listener is put to rest, and others after.
    later(&t, &mut shop, Duration::from_mins(5)).await;
    rename(&t, &shop, "Two").await;
    later(&t, &mut shop, Duration::from_mins(25)).await;
    let listed = shop.owner.asks(t.get(&format!("/apps/{}/webhooks", id(&shop.app)))).await;
    assert_eq!(listed.body["webhooks"], json!([]), "at rest it is not shown");
    later(&t, &mut shop, Duration::from_hours(40)).await;
    rename(&t, &shop, "Three").await;

    let mut stream = Listening::open(&t, &shop, &last).await;
    assert!(stream.is_resumed && stream.id == listener);
    t.run_jobs().await;
    deliver(&t).await;
    let missed = stream.read().await;
    let names = |deliveries: &[Value]| -> Vec<String> {
        let renamed = deliveries.iter().filter(|one| one["event"] == "audit.APP_UPDATED");
        renamed.map(event_of).collect()
    };
    assert_eq!(names(&missed).len(), 2, "{missed:?}");
    let known: std::collections::BTreeSet<String> = first.iter().chain(&missed).map(event_of).collect();
    assert_eq!(known.len(), first.len() + missed.len(), "nothing comes twice");
    rename(&t, &shop, "Four").await;
    assert_eq!(names(&stream.read().await).len(), 1, "and it goes on");

    // After three days it is deleted, and another one begins.
    let last = stream.last.clone();
    drop(stream);
    later(&t, &mut shop, Duration::from_hours(80)).await;
    let stream = Listening::open(&t, &shop, &last).await;
    assert!(!stream.is_resumed && stream.id != listener);
    drop(stream);
    done(t).await;
}

#[tokio::test]
async fn a_stream_that_breaks_often_loses_nothing_and_repeats_only_what_has_no_result() {
    let t = start().await;
    let shop = Shop::open(&t).await;
    let (mut last, mut reported, mut listeners) = (String::new(), Vec::new(), Vec::new());
    let rounds = 15;
    for round in 0..rounds {
        rename(&t, &shop, &format!("Shop {round}")).await;
        let mut stream = Listening::open(&t, &shop, &last).await;
        listeners.push(stream.id.clone());
        if round == 0 {
            // The first listener began after the change.
            rename(&t, &shop, "Shop").await;
        }
        let came = stream.read().await;
        // Every second time the connection breaks before the result is known.
        if round % 2 == 0 {
            for delivery in &came {
                stream.report(&t, &shop, delivery).await;
                if delivery["event"] == "audit.APP_UPDATED" {
                    reported.push(event_of(delivery));
                }
            }
        }
        last.clone_from(&stream.last);
    }
    listeners.dedup();
    assert_eq!(listeners.len(), 1, "it is the same listener each time");
    let all = reported.len();
    reported.sort();
    reported.dedup();
    assert_eq!((reported.len(), all), (rounds, rounds), "each event was reported once");
    done(t).await;
}
