//! Spans in a collector that others wrote: it takes them, and shows what we meant.
use std::{
    io::{BufRead as _, BufReader},
    net::TcpListener,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use identity::testing::signed_in;

use super::*;
use crate::otlp;

/// Rotel, which prints every span that it takes.
struct Rotel {
    child: Child,
    url: String,
    printed: Arc<Mutex<String>>,
}

fn free_place() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

impl Rotel {
    fn start() -> Self {
        let python =
            std::env::var("TEST_PYTHON").expect("TEST_PYTHON names a Python with what scripts/setup installs");
        let find = "import os, rotel; print(os.path.join(os.path.dirname(rotel.__file__), 'rotel-agent'))";
        let found = Command::new(python).args(["-c", find]).output().expect("Python");
        assert!(found.status.success(), "scripts/setup installs rotel: {}", String::from_utf8_lossy(&found.stderr));
        let program = String::from_utf8(found.stdout).unwrap();
        let place = free_place();
        let mut child = Command::new(program.trim())
            .args(["start", "--exporter", "blackhole", "--debug-log", "traces", "--debug-log-verbosity", "detailed"])
            .args(["--otlp-http-endpoint", &place, "--otlp-grpc-endpoint", &free_place()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the collector");
        let printed: Arc<Mutex<String>> = Arc::default();
        let (lines, kept) = (BufReader::new(child.stdout.take().unwrap()).lines(), printed.clone());
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let mut kept = kept.lock().unwrap();
                // Words and values in columns: one space between them.
                kept.push_str(&line.split_whitespace().collect::<Vec<_>>().join(" "));
                kept.push('\n');
            }
        });
        Self { child, url: format!("http://{place}"), printed }
    }

    /// What it printed, as soon as this is part of it.
    async fn prints(&self, text: &str) -> String {
        let began = tokio::time::Instant::now();
        loop {
            let printed = self.printed.lock().unwrap().clone();
            if printed.contains(text) {
                return printed;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{text:?} never came: {printed}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Sends this to the route of traces, as soon as the program listens.
    async fn answers(&self, body: &'static str) -> u16 {
        let began = tokio::time::Instant::now();
        let post = || {
            let post = reqwest::Client::new().post(format!("{}/v1/traces", self.url));
            post.header("content-type", "application/json").body(body)
        };
        loop {
            match post().send().await {
                Ok(answer) => return answer.status().as_u16(),
                Err(error) => assert!(began.elapsed() < Duration::from_secs(20), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Rotel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_collector_takes_the_spans_and_shows_them_as_they_were_meant() {
    let collector = Rotel::start();
    // It reads what it is sent: a span whose ID is none is refused.
    let wrong = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"none","spanId":7}]}]}]}"#;
    assert_eq!(collector.answers(wrong).await, 400);
    let url = collector.url.parse().unwrap();
    let config = Config::for_tests().with(|insights: &mut otlp::Settings| insights.otlp_endpoint = Some(url));
    let t = TestJanua::start_with(config, feature).await;
    signed_in(&t, "ada@example.com").await;
    let caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let body = json!({ "email": "ada@example.com" });
    let asked = t.post("/auth/forgot-password").json(&body).header("traceparent", caller).await;
    assert!(asked.status < 300, "{}", asked.text);
    t.run_jobs().await;
    crate::keep_requests(&t.janua).await;
    otlp::send_waiting(&t.janua).await.unwrap();
    assert_eq!(t.janua.metrics.spans.dropped(), 0, "it took every span");
    let trace = "Trace ID : 4bf92f3577b34da6a3ce929d0e0e4736\n";
    let printed = collector.prints("Name : POST /auth/forgot-password\n").await;
    let spans: Vec<&str> = printed.split("Span #").filter(|span| span.contains(trace)).collect();
    let request = spans.iter().find(|span| span.contains("Name : POST /auth/forgot-password\n")).unwrap();
    assert!(request.contains("Parent ID : 00f067aa0ba902b7\n"), "{request}");
    assert!(request.contains("Kind : SPAN_KIND_SERVER\n") && request.contains("STATUS_CODE_UNSET"), "{request}");
    let status = format!("http.response.status_code: Int({})", asked.status);
    let id = format!("janua.request_id: Str({})", asked.header("x-request-id"));
    assert!(request.contains(&status) && request.contains(&id), "{request}");
    let own = request.lines().find_map(|line| line.strip_prefix("ID : ")).expect("its own ID");
    let job = spans.iter().find(|span| span.contains(&format!("Parent ID : {own}\n"))).expect("the job below it");
    assert!(job.contains("Kind : SPAN_KIND_CONSUMER\n"), "{job}");
    assert!(spans.iter().any(|span| span.contains("Name : mail.send\n") && span.contains(&id)), "{printed}");
    assert!(printed.contains("service.name: Str(janua)"), "{printed}");
    assert!(!printed.contains("ada@example.com"), "no names: {printed}");
    t.finish().await;
}
