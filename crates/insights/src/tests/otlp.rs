//! Spans as a collector gets them, decoded by the published types of the protocol.
use std::{
    io::Write as _,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
};

use identity::testing::signed_in;
use kernel::config::Setting as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;
use crate::otlp;

/// Prints one line for each span; fails where a field is not of the protocol. In its JSON mapping ids are hexadecimal, other
/// than in the mapping of protobuf in general.
const DECODE: &str = r#"
import base64, json, sys
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
def plain(value):
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        ids = ("traceId", "spanId", "parentSpanId")
        return {k: base64.b64encode(bytes.fromhex(v)).decode() if k in ids else plain(v) for k, v in value.items()}
    return value
request = json_format.ParseDict(plain(json.load(sys.stdin)), ExportTraceServiceRequest())
for resource in request.resource_spans:
    names = {a.key: a.value.string_value for a in resource.resource.attributes}
    assert names["service.name"] == "janua" and names["service.instance.id"], names
    for scope in resource.scope_spans:
        for span in scope.spans:
            assert len(span.trace_id) == 16 and len(span.span_id) == 8, span
            assert span.end_time_unix_nano >= span.start_time_unix_nano > 10**18, span
            values = {a.key: a.value.string_value or a.value.int_value for a in span.attributes}
            print(json.dumps({"trace": span.trace_id.hex(), "span": span.span_id.hex(), "parent": span.parent_span_id.hex(),
                              "name": span.name, "kind": span.kind, "status": span.status.code, "values": values}))
"#;

fn decoded(body: &str) -> Vec<Value> {
    let python = std::env::var("TEST_PYTHON").expect("TEST_PYTHON names a Python with what scripts/setup installs");
    let mut child = Command::new(python)
        .args(["-c", DECODE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python");
    child.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "cannot be decoded: {body}");
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A collector that answers with each status in turn, then always with the last.
struct Collector {
    url: String,
    heard: Arc<Mutex<Vec<(String, String)>>>,
}

impl Collector {
    async fn start(statuses: &'static [u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let heard: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
        let kept = heard.clone();
        tokio::spawn(async move {
            let mut turn = 0;
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut read = Vec::new();
                let (head, body) = loop {
                    let mut piece = vec![0; 65536];
                    let Ok(length @ 1..) = socket.read(&mut piece).await else {
                        break (String::new(), String::new());
                    };
                    read.extend_from_slice(&piece[..length]);
                    let text = String::from_utf8_lossy(&read).into_owned();
                    let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                    let length = head.to_lowercase().lines().find_map(|line| {
                        line.strip_prefix("content-length: ").and_then(|length| length.parse::<usize>().ok())
                    });
                    if Some(body.len()) >= length {
                        break (head.to_owned(), body.to_owned());
                    }
                };
                kept.lock().unwrap().push((head, body));
                let status = statuses.get(turn).or(statuses.last()).copied().unwrap_or(200);
                turn += 1;
                let answer = format!(
                    "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}"
                );
                let _ = socket.write_all(answer.as_bytes()).await;
            }
        });
        Self { url, heard }
    }

    fn heard(&self) -> Vec<(String, String)> {
        self.heard.lock().unwrap().clone()
    }

    async fn janua(&self) -> TestJanua {
        let url = self.url.parse().unwrap();
        let config = Config::for_tests().with(|insights: &mut otlp::Settings| {
            insights.otlp_endpoint = Some(url);
            insights.otlp_headers = Vec::parse("api-key=hush, tenant=acme").unwrap();
        });
        TestJanua::start_with(config, feature).await
    }
}

#[tokio::test]
async fn requests_and_jobs_are_exported_as_the_protocol_says() {
    let collector = Collector::start(&[200]).await;
    let t = collector.janua().await;
    signed_in(&t, "ada@example.com").await;
    let caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let body = json!({ "email": "ada@example.com" });
    let asked = t.post("/auth/forgot-password").json(&body).header("traceparent", caller).await;
    assert!(asked.status < 300, "{}", asked.text);
    t.run_jobs().await;
    crate::keep_requests(&t.janua).await;
    otlp::send_waiting(&t.janua).await.unwrap();
    let heard = collector.heard();
    let (head, body) = &heard[0];
    assert!(head.starts_with("POST /v1/traces HTTP/1.1") && head.contains("application/json"), "{head}");
    assert!(head.contains("api-key: hush") && head.contains("tenant: acme"), "{head}");
    let spans = decoded(body);
    let named = |name: &str| spans.iter().rev().find(|span| span["name"] == name).expect(name);
    let request = named("POST /auth/forgot-password");
    assert_eq!((&request["kind"], &request["status"]), (&json!(2), &json!(0)));
    assert_eq!(request["trace"], "4bf92f3577b34da6a3ce929d0e0e4736", "the caller's trace goes on");
    assert_eq!(request["parent"], "00f067aa0ba902b7");
    assert_eq!(request["values"]["http.response.status_code"], asked.status);
    let id = asked.header("x-request-id");
    assert_eq!(request["values"]["janua.request_id"], id);
    let job = spans.iter().find(|span| span["name"] == "mail.send" && span["trace"] == request["trace"]);
    let job = job.expect("the mail belongs to the same trace");
    assert_eq!(job["kind"], 5);
    // The request enqueued a job, and that job the mail.
    let between = spans.iter().find(|span| span["span"] == job["parent"]).expect("the job that wrote the mail");
    assert_eq!(between["parent"], request["span"], "{between}");
    assert_eq!(job["values"]["janua.request_id"], id);
    assert!(!body.contains("ada@example.com"), "no names: {body}");
    t.finish().await;
}

#[tokio::test]
async fn a_collector_that_is_away_costs_nothing_but_the_spans_that_find_no_room() {
    let collector = Collector::start(&[503, 400, 200]).await;
    let t = collector.janua().await;
    t.get("/auth/me").await;
    crate::keep_requests(&t.janua).await;
    assert!(otlp::send_waiting(&t.janua).await.is_err(), "later");
    assert_eq!(t.janua.metrics.spans.dropped(), 0, "it waits");
    otlp::send_waiting(&t.janua).await.unwrap();
    assert_eq!(t.janua.metrics.spans.dropped(), 1, "refused for good");
    for _ in 0..10_000 {
        t.get("/auth/me").await;
    }
    assert_eq!(t.janua.metrics.spans.dropped(), 1 + 10_000 - 8192, "the queue is bounded");
    crate::keep_requests(&t.janua).await;
    otlp::send_waiting(&t.janua).await.unwrap();
    assert_eq!(collector.heard().len(), 2 + 16, "in batches");
    t.finish().await;
}
