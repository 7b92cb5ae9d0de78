//! Transactions that run on the writer's thread.
use db::Error;
use kernel::{feature::Feature, http::Routes, telemetry, testing::TestJanua};

#[tokio::test]
async fn log_lines_of_a_carried_transaction_are_about_the_request_of_the_caller() {
    let t = TestJanua::start(|_| Feature::new(Routes::new("test"))).await;
    let asked = || t.janua.carry((), |_, ()| Box::pin(async { Ok::<_, Error>(telemetry::about()) }));
    let about = telemetry::ABOUT.scope("request 7".into(), asked()).await.unwrap();
    assert_eq!((about.as_deref(), asked().await.unwrap()), (Some("request 7"), None));
    t.finish().await;
}
