//! Transactions that run on the writer's thread.
use db::Error;
use kernel::{
    feature::Feature,
    http::Routes,
    telemetry::{self, About, SpanPlace},
    testing::TestJanua,
};

#[tokio::test]
async fn log_lines_of_a_carried_transaction_are_about_the_request_of_the_caller() {
    let t = TestJanua::start(|_| Feature::new(Routes::new("test"))).await;
    let asked = || t.janua.carry((), |_, ()| Box::pin(async { Ok::<_, Error>(telemetry::about()) }));
    let place = SpanPlace::below(None, t.janua.entropy.uuid(t.janua.clock.now()));
    let request = About::request("request 7".into(), place);
    let about = telemetry::ABOUT.scope(request, asked()).await.unwrap();
    assert_eq!(
        (about.map(|about| about.name().to_string()), asked().await.unwrap().is_none()),
        (Some("request 7".into()), true)
    );
    t.finish().await;
}
