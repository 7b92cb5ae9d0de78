//! Text messages through both drivers: a folder, and a server on this machine that is spoken to as Twilio is.
use std::sync::{Arc, Mutex};

use axum::{
    Router,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    routing::post,
};
use kernel::{
    config::Config,
    ports::{
        SendError,
        sms::{Sms, from_config},
    },
};

/// What the service heard, and what it says.
#[derive(Clone)]
struct Service(Arc<Mutex<(Vec<String>, StatusCode)>>);

async fn take(
    State(service): State<Service>,
    Path(account): Path<String>,
    headers: HeaderMap,
    body: String,
) -> StatusCode {
    let who = headers["authorization"].to_str().unwrap().to_owned();
    let mut inner = service.0.lock().unwrap();
    inner.0.push(format!("{account} {who} {body}"));
    inner.1
}

async fn service() -> (Service, Arc<dyn Sms>) {
    let service = Service(Arc::new(Mutex::new((vec![], StatusCode::CREATED))));
    let router =
        Router::new().route("/2010-04-01/Accounts/{account}/Messages.json", post(take)).with_state(service.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = Config {
        sms_url: Some(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap()),
        sms_account: Some("AC123".to_owned().into()),
        sms_token: Some("hush".to_owned().into()),
        sms_from: "+15005550006".into(),
        ..Config::for_tests()
    };
    tokio::spawn(async move { axum::serve(listener, router).await });
    (service, from_config(&config).unwrap())
}

#[tokio::test]
async fn the_service_is_asked_as_twilio_is() {
    let (service, sms) = service().await;
    sms.send("id", "+41446681800", "123456 is your code & more").await.unwrap();
    let heard = service.0.lock().unwrap().0.clone();
    // "AC123:hush"
    let fields = "To=%2B41446681800&From=%2B15005550006&Body=123456+is+your+code+%26+more";
    let expected = format!("AC123 Basic QUMxMjM6aHVzaA== {fields}");
    assert_eq!(heard, [expected]);
}

#[tokio::test]
async fn a_refusal_is_final_and_anything_else_is_not() {
    let (service, sms) = service().await;
    for (status, is_final) in [(400, true), (403, true), (429, false), (500, false), (503, false), (301, false)] {
        service.0.lock().unwrap().1 = StatusCode::from_u16(status).unwrap();
        match sms.send("id", "+41446681800", "code").await {
            Err(SendError::Never(_)) => assert!(is_final, "{status}"),
            Err(_) => assert!(!is_final, "{status}"),
            Ok(()) => panic!("{status} was taken for a success"),
        }
    }
}

#[tokio::test]
async fn a_service_that_is_away_is_asked_again_and_its_token_is_not_told() {
    let config = Config {
        sms_url: Some("http://127.0.0.1:9".parse().unwrap()),
        sms_account: Some("AC123".to_owned().into()),
        sms_token: Some("hush".to_owned().into()),
        sms_from: "Janua".into(),
        ..Config::for_tests()
    };
    let error = from_config(&config).unwrap().send("id", "+41446681800", "code").await.unwrap_err();
    assert!(matches!(&error, SendError::Later(why) if !why.contains("AC123") && !why.contains("hush")), "{error}");
}

#[tokio::test]
async fn without_a_service_messages_lie_in_the_outbox() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { data_dir: folder.path().to_owned(), ..Config::for_tests() };
    from_config(&config).unwrap().send("one", "+41446681800", "123456").await.unwrap();
    let message = std::fs::read_to_string(folder.path().join("outbox/one.sms")).unwrap();
    assert_eq!(message, "To: +41446681800\n\n123456\n");
}

#[test]
fn half_a_configuration_is_none() {
    let half = Config { sms_url: Some("https://sms.example".parse().unwrap()), ..Config::for_tests() };
    assert!(from_config(&half).err().unwrap().contains("sms_account"));
}
