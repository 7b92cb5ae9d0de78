//! Attachments that are stored objects of the app.
use super::*;

fn with_storage(config: &Config) -> Feature {
    feature(config).and(hosting::feature(config))
}

async fn store(t: &TestJanua, shop: &Shop, name: &str, bytes: &[u8]) -> String {
    let path = format!("/apps/{}/storage?name={name}", shop.app);
    let made = shop.owner.asks(t.post(&path).body(bytes.to_vec()).header("content-type", "application/pdf")).await;
    assert_eq!(made.status, 200, "{}", made.text);
    made.body["id"]
        .as_str()
        .or_else(|| made.body["objectId"].as_str())
        .unwrap_or_else(|| panic!("{}", made.text))
        .to_owned()
}

#[tokio::test]
async fn a_stored_object_is_attached_as_it_is_and_those_of_others_are_unknown() {
    let t = TestJanua::start(with_storage).await;
    let shop = Shop::ready(&t, "ada@example.com", "mail.example.test").await;
    let other = Shop::ready(&t, "eve@example.com", "mail.eve.test").await;
    let (own, foreign) = (
        store(&t, &shop, "bills/march.pdf", b"%PDF-1.7 one").await,
        store(&t, &other, "secret.pdf", b"%PDF x").await,
    );
    let mut body = mail("zoe@rcpt.test");
    body["attachments"] =
        json!([{ "objectId": own }, { "objectId": own, "filename": "copy.pdf", "contentType": "text/plain" }]);
    let sent = shop.sends(&t, &body).await;
    assert_eq!(sent.status, 200, "{}", sent.text);
    // It is sent as it was when it was handed in.
    assert!(shop.owner.asks(t.ask(Method::DELETE, &format!("/apps/{}/storage/{own}", shop.app))).await.status < 300);
    deliver(&t).await;
    let received = delivered(&t).pop().unwrap();
    assert!(received.contains("filename=\"march.pdf\"") && received.contains("filename=\"copy.pdf\""), "{received}");
    assert!(received.contains("Content-Type: application/pdf") && received.contains("%PDF-1.7 one"), "{received}");
    for (attachment, field) in [
        (json!({ "objectId": foreign }), "attachments.0.objectId"),
        (json!({ "objectId": own }), "attachments.0.objectId"),
        (json!({ "objectId": "nonsense" }), "attachments.0.objectId"),
        (json!({ "objectId": "01900000-0000-7000-8000-000000000000" }), "attachments.0.objectId"),
        (json!({ "objectId": foreign, "content": "AA==", "filename": "a.pdf" }), "attachments.0.objectId"),
        (json!({ "filename": "a.pdf" }), "attachments.0.content"),
        (json!({ "content": "AA==" }), "attachments.0.filename"),
    ] {
        body["attachments"] = json!([attachment]);
        let refused = shop.sends(&t, &body).await;
        assert_eq!(refused.refusal(), (400, "invalid"), "{attachment}: {}", refused.text);
        let named: Vec<&str> =
            refused.body["errors"].as_array().unwrap().iter().map(|error| error["field"].as_str().unwrap()).collect();
        assert_eq!(named, [field], "{attachment}");
    }
    // A program by its stored name, and more than a mail carries.
    let program = store(&t, &shop, "run.exe", b"%PDF-1.7 x").await;
    let large = store(&t, &shop, "large.pdf", &[&b"%PDF-1.7 "[..], &vec![b'x'; 6 << 20]].concat()).await;
    body["attachments"] = json!([{ "objectId": program }]);
    assert_eq!(shop.sends(&t, &body).await.body["errors"][0]["field"], "attachments.0.filename");
    body["attachments"] = json!([{ "objectId": large }, { "objectId": large }]);
    assert_eq!(shop.sends(&t, &body).await.body["errors"][0]["field"], "attachments");
    // Three of these are as much as one request carries, however few its own bytes are.
    body["attachments"] = json!([{ "objectId": large }]);
    let batch = async |count: usize| {
        let messages = vec![&body; count];
        let ask = t.post(&shop.path("/batch")).header("x-service-app-key", &shop.key);
        ask.json(&json!({ "messages": messages })).await
    };
    let refused = batch(4).await;
    assert_eq!(refused.refusal(), (400, "invalid"), "{}", refused.text);
    assert_eq!(refused.body["errors"][0]["field"], "messages", "{}", refused.text);
    assert_eq!(batch(3).await.status, 200);
    t.run_jobs().await;
    t.finish().await;
}
