//! The reference, as the whole service draws it.
use super::*;

fn groups(t: &TestJanua) -> Vec<String> {
    let document = &t.janua.description.get().unwrap().value();
    document["tags"].as_array().unwrap().iter().map(|tag| text(&tag["name"])).collect()
}

#[tokio::test]
async fn every_operation_is_in_the_reference_and_every_page_is_one_of_ours() {
    let t = TestJanua::start(whole).await;
    let document = t.janua.description.get().unwrap().value();
    let index = t.get("/reference").await;
    assert_eq!((index.status, index.header("content-type")), (200, "text/html; charset=utf-8"));
    let mut pages = vec![(String::new(), index)];
    for group in groups(&t) {
        let page = t.get(&format!("/reference/{group}")).await;
        assert_eq!(page.status, 200, "{group}: {}", page.text);
        pages.push((group, page));
    }
    for (group, page) in &pages {
        assert!(page.text.len() < 500_000, "{group} has {} bytes", page.text.len());
        assert!(!page.text.contains("style=") && !page.text.contains("<script>"), "{group}");
        let policy = page.header("content-security-policy");
        assert!(policy.contains("default-src 'none'") && policy.contains("connect-src 'self'"), "{policy}");
        for address in page.text.split("src=\"").skip(1).chain(page.text.split("href=\"").skip(1)) {
            assert!(address.starts_with('/') || address.starts_with('#'), "{group}: {}", &address[..40]);
        }
    }
    let of = |group: &str| &pages.iter().find(|(name, _)| name == group).unwrap().1.text;
    let mut operations = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let (id, page) = (text(&operation["operationId"]), of(operation["tags"][0].as_str().unwrap()));
            assert!(page.contains(&format!("id=\"{id}\" class=\"operation\"")), "{method} {path}");
            assert!(of("").contains(&format!("#{id}\"")), "{method} {path} is in the index");
            operations += 1;
        }
    }
    assert!(operations > 150, "{operations}");
    let canary = of("status").split("id=\"status.canary\"").nth(1).unwrap().split("</article>").next().unwrap();
    assert!(
        canary.contains("<strong>503</strong> <code>application&#x2f;json</code>"),
        "not only refusals: {canary}"
    );
    for event in document["webhooks"].as_object().unwrap().keys() {
        assert!(of("webhooks").contains(&format!("id=\"told.{event}\"")), "{event}");
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_page_is_fetched_once_and_one_that_is_not_there_says_so() {
    let t = TestJanua::start(whole).await;
    let first = t.get("/reference/auth").await;
    let tag = first.header("etag").to_owned();
    let again = t.get("/reference/auth").header("if-none-match", &tag).await;
    assert_eq!((again.status, again.text.as_str()), (304, ""));
    assert!(first.header("cache-control").starts_with("public"), "the same for everybody");
    for wrong in ["/reference/nothing", "/reference/%2e%2e", "/reference/%3Cscript%3E"] {
        let answer = t.get(wrong).await;
        assert_eq!((answer.status, answer.header("content-type")), (404, "text/html; charset=utf-8"), "{wrong}");
        assert!(!answer.text.contains("<script>"));
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn an_example_is_what_its_schema_allows() {
    let t = TestJanua::start(whole).await;
    let document = t.janua.description.get().unwrap().value();
    let mut tried = 0;
    for group in groups(&t) {
        let page = t.get(&format!("/reference/{group}")).await;
        for part in page.text.split("data-try=\"").skip(1) {
            let raw = part.split('"').next().unwrap();
            let marks =
                [("&quot;", "\""), ("&#x27;", "'"), ("&#x2f;", "/"), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")];
            let raw = marks.iter().fold(raw.to_owned(), |text, (mark, plain)| text.replace(mark, plain));
            let wish: Value = serde_json::from_str(&raw).expect("JSON for the script");
            if wish["body"]["type"] != "application/json" {
                continue;
            }
            let (method, path) = (text(&wish["method"]).to_lowercase(), text(&wish["path"]));
            let operation = &document["paths"][&path][&method];
            let mut schema = operation["requestBody"]["content"]["application/json"]["schema"].clone();
            schema["components"] = document["components"].clone();
            let body: Value = serde_json::from_str(wish["body"]["text"].as_str().unwrap()).unwrap();
            let wrong = jsonschema::validate(&schema, &body).err().map(|error| error.to_string());
            assert_eq!(wrong, None, "{method} {path}: {body}");
            tried += 1;
        }
    }
    assert!(tried > 60, "{tried}");
    t.run_jobs().await;
    t.finish().await;
}
