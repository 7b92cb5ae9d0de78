//! How much and how often anybody may ask.
use super::*;

fn few(per_minute: u32) -> Config {
    Config { rate_limit_per_minute: per_minute, ..Config::for_tests() }
}

#[tokio::test]
async fn who_asks_too_often_waits_and_nobody_else_does() {
    let t = TestJanua::start_with(few(3), feature).await;
    for left in ["2", "1", "0"] {
        let answer = t.get("/whoami").from("192.0.2.1").await;
        assert_eq!(answer.header("ratelimit"), format!("\"requests\";r={left}"));
        assert_eq!(answer.header("ratelimit-policy"), "\"requests\";q=3;w=60");
    }
    let refused = t.get("/whoami").from("192.0.2.1").header("x-forwarded-for", "198.51.100.7").await;
    assert_eq!(refused.refusal(), (429, "rate_limited"), "a header from a stranger opens no new bucket");
    assert_eq!(refused.header("retry-after"), "20");
    assert!(refused.header("ratelimit").starts_with("\"requests\";r=0;t="));
    assert_eq!(t.get("/nowhere").from("192.0.2.1").await.status, 429, "unknown routes count too");
    assert_eq!(t.get("/probe").from("192.0.2.1").await.status, 200, "probes are always answered");
    assert_eq!(t.get("/whoami").from("192.0.2.2").await.status, 200, "another address");
    t.advance(Duration::from_secs(20));
    assert_eq!(t.get("/whoami").from("192.0.2.1").await.status, 200, "after the wait");
    assert_eq!(t.get("/whoami").from("192.0.2.1").await.status, 429);

    assert_eq!(t.get("/whoami").from("2001:db8::1").await.status, 200);
    assert_eq!(t.get("/whoami").from("2001:db8::2").await.header("ratelimit"), "\"requests\";r=1", "one /64");
    t.finish().await;
}

#[tokio::test]
async fn behind_a_trusted_proxy_the_client_is_counted_and_not_the_proxy() {
    let config = Config { trusted_proxies: vec!["10.0.0.0/8".parse().unwrap()], ..few(1) };
    let t = TestJanua::start_with(config, feature).await;
    let ask = |client: &str| t.get("/whoami").from("10.0.0.1").header("x-forwarded-for", client).send();
    assert_eq!(ask("192.0.2.1").await.body, "192.0.2.1");
    assert_eq!(ask("192.0.2.1").await.status, 429);
    assert_eq!(ask("192.0.2.2").await.status, 200);
    assert_eq!(ask("192.0.2.9, 192.0.2.1").await.status, 429, "what the client put in front changes nothing");
    t.finish().await;
}

#[tokio::test]
async fn past_its_bound_the_server_sheds_at_once_and_still_answers_probes() {
    let t = TestJanua::start_with(Config { max_in_flight: 1, ..Config::for_tests() }, feature).await;
    let mut slow = Box::pin(t.get("/slow").send());
    assert!(futures_util::poll!(&mut slow).is_pending());
    let shed = t.get("/whoami").await;
    assert_eq!((shed.refusal(), shed.header("retry-after")), ((503, "overloaded"), "1"));
    assert_eq!(t.get("/probe").await.status, 200);
    drop(slow);
    assert_eq!(t.get("/whoami").await.status, 200, "who goes away frees the place");
    t.finish().await;
}

#[tokio::test]
async fn one_network_holds_half_of_the_places_and_no_more() {
    let t = TestJanua::start_with(Config { max_in_flight: 4, ..Config::for_tests() }, feature).await;
    let mut held: Vec<_> = ["192.0.2.1", "192.0.2.1"].map(|peer| Box::pin(t.get("/slow").from(peer).send())).into();
    for slow in &mut held {
        assert!(futures_util::poll!(slow).is_pending());
    }
    let shed = t.get("/whoami").from("192.0.2.1").await;
    assert_eq!((shed.refusal(), shed.header("retry-after")), ((503, "overloaded"), "1"));
    assert_eq!(t.get("/whoami").from("192.0.2.2").await.status, 200, "another network");
    assert_eq!(t.get("/whoami").from("2001:db8::1").await.status, 200);
    drop(held);
    assert_eq!(t.get("/whoami").from("192.0.2.1").await.status, 200, "who goes away frees the share");
    t.finish().await;
}

#[tokio::test]
async fn a_request_takes_its_place_once_its_body_is_there() {
    let t = TestJanua::start_with(Config { max_in_flight: 1, ..Config::for_tests() }, feature).await;
    let never = || axum::body::Body::from_stream(futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let ask = || t.post("/echo").header("content-type", "application/json");
    let mut waiting: Vec<_> = (0..50).map(|_| Box::pin(ask().body(never()).send())).collect();
    for one in &mut waiting {
        assert!(futures_util::poll!(one).is_pending());
    }
    assert_eq!(t.janua.metrics.in_flight.get(), 0);
    assert_eq!(t.post("/echo").json(&ada()).await.status, 200);
    let mut slow = Box::pin(t.get("/slow").send());
    assert!(futures_util::poll!(&mut slow).is_pending());
    assert_eq!(ask().body(never()).await.refusal(), (503, "overloaded"), "it is not even waited for");
    drop((slow, waiting));
    t.finish().await;
}

#[tokio::test]
async fn what_bodies_that_are_not_whole_yet_hold_in_memory_is_bounded() {
    use futures_util::StreamExt as _;
    let t = TestJanua::start(feature).await;
    // Nearly all of a body of 1 MiB, and then nothing more.
    let most = || {
        let piece = futures_util::stream::iter([Ok::<_, std::io::Error>(vec![b' '; 1024 * 1024 - 10])]);
        axum::body::Body::from_stream(piece.chain(futures_util::stream::pending()))
    };
    let ask = |peer: &str| t.post("/echo").from(peer).header("content-type", "application/json");
    let mut held = vec![];
    let mut refused = 0;
    for i in 0..200 {
        let mut one = Box::pin(ask(&format!("192.0.2.{}", 1 + i % 10)).body(most()).send());
        match futures_util::poll!(&mut one) {
            std::task::Poll::Pending => held.push(one),
            std::task::Poll::Ready(answer) => {
                assert_eq!(answer.refusal(), (503, "overloaded"));
                refused += 1;
            }
        }
    }
    assert!(held.len() <= 64 && refused >= 136, "{} are held and {refused} refused", held.len());
    assert_eq!(ask("192.0.2.1").body(ada().to_string()).await.status, 200, "there is room for what is small");
    drop(held);
    let mut one = Box::pin(ask("192.0.2.1").body(most()).send());
    assert!(futures_util::poll!(&mut one).is_pending(), "who goes away frees it");
    drop(one);
    t.finish().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_large_body_is_said_in_a_small_answer() {
    let t = TestJanua::start(feature).await;
    let wrong = |many: usize| json!({ "name": "Ada", "age": 36, "tags": vec![7; many] });
    let some = t.post("/echo").json(&wrong(10_000)).await;
    assert_eq!((some.refusal(), some.body["errors"].as_array().unwrap().len()), ((400, "invalid"), 100));
    let most = t.post("/echo").json(&wrong(400_000)).await;
    assert_eq!((most.refusal(), &most.body["detail"]), ((400, "malformed"), &json!("Too many values.")));
    assert!(most.body.to_string().len() < 1_000);
    t.finish().await;
}
