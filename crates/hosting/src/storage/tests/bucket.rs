//! F-W3: a bucket that is stopped, silent, slow, or breaks its answers off.
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use kernel::{
    config::Config,
    testing::{Answer, S3Server},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

use super::{Shop, new, text};
use crate::{
    storage::underway::Completions,
    tests::{host_of, shows, site},
};

/// What happens to answers of the bucket on their way.
#[derive(Default)]
struct Mood {
    is_stopped: AtomicBool,
    is_silent: AtomicBool,
    delay_ms: AtomicU64,
    /// The bytes of an answer that pass before the connection is cut; all of them if none.
    most: AtomicU64,
}

/// A wire between the service and its bucket.
struct Wire {
    mood: Arc<Mood>,
    url: String,
    /// Where the edge keeps what it read from the bucket.
    folder: tempfile::TempDir,
}

impl Wire {
    async fn to(server: &S3Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (url, mood) = (format!("http://{}", listener.local_addr().unwrap()), Arc::<Mood>::default());
        let (far, moods) = (server.url.trim_start_matches("http://").to_owned(), mood.clone());
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = TcpStream::connect(&far).await else { continue };
                let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
                tokio::spawn(pass(near_in, far_out, moods.clone(), false));
                tokio::spawn(pass(far_in, near_out, moods.clone(), true));
            }
        });
        Self { mood, url, folder: tempfile::tempdir().unwrap() }
    }

    fn heal(&self) {
        self.mood.is_stopped.store(false, SeqCst);
        self.mood.is_silent.store(false, SeqCst);
        self.mood.delay_ms.store(0, SeqCst);
        self.mood.most.store(0, SeqCst);
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mood: Arc<Mood>, is_answer: bool) {
    let (mut bytes, mut passed) = (vec![0; 16 * 1024], 0);
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if mood.is_stopped.load(SeqCst) {
            return;
        }
        if is_answer {
            tokio::time::sleep(Duration::from_millis(mood.delay_ms.load(SeqCst))).await;
            if mood.is_silent.load(SeqCst) {
                continue;
            }
            let most = mood.most.load(SeqCst);
            passed += count as u64;
            if most > 0 && passed > most {
                return;
            }
        }
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

async fn shop_behind_a_wire() -> (Shop, Wire) {
    shop_in_a_hurry(Config::for_tests().request_timeout).await
}

/// One whose requests may take so long.
async fn shop_in_a_hurry(request_timeout: Duration) -> (Shop, Wire) {
    let server = S3Server::start().await;
    let wire = Wire::to(&server).await;
    let data_dir = wire.folder.path().to_owned();
    let config = Config { s3_url: Some(wire.url.parse().unwrap()), data_dir, request_timeout, ..server.config() };
    (Shop::with(config, Some(server)).await, wire)
}

#[expect(clippy::disallowed_methods, reason = "how long it took")]
fn clock() -> Instant {
    Instant::now()
}

/// It is refused in the time the contract says, give or take what a busy machine needs.
async fn is_away(what: &str, asked: impl Future<Output = Answer>) {
    let began = clock();
    let away = asked.await;
    assert_eq!(away.refusal(), (503, "unavailable"), "{what}: {}", away.text);
    assert!(!away.header("retry-after").is_empty(), "{what}");
    assert!(began.elapsed() < Duration::from_secs(13), "{what}: {:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn fw3_an_upload_survives_a_bucket_that_stops_falls_silent_or_breaks_off() {
    let (shop, wire) = shop_behind_a_wire().await;
    let words = vec![b'w'; 200_000];
    let offer = shop.presign(&new("a.txt", words.len())).await.body;
    let id = text(&offer["objectId"]);
    assert_eq!(shop.put(&offer, &words).await, 200);
    let nothing = json!({});
    wire.mood.is_stopped.store(true, SeqCst);
    is_away("stopped", shop.finalize(&id, &nothing)).await;
    wire.heal();
    wire.mood.is_silent.store(true, SeqCst);
    let began = clock();
    is_away("silent", shop.finalize(&id, &nothing)).await;
    shop.t.advance(began.elapsed());
    wire.heal();
    // The head and the copy pass; what is read for the digest breaks off.
    wire.mood.most.store(50_000, SeqCst);
    is_away("breaks off", shop.finalize(&id, &nothing)).await;
    wire.heal();
    wire.mood.delay_ms.store(500, SeqCst);
    let done = shop.finalize(&id, &nothing).await;
    assert_eq!((done.status, &done.body["status"]), (200, &json!("ready")), "slow, and whole: {}", done.text);
    assert_eq!(done.body["sha256"], json!(kernel::crypto::hash(&words)));
    wire.heal();
    let url = text(&done.body["downloadUrl"]);
    let read = reqwest::get(&url).await.unwrap();
    assert_eq!((read.status().as_u16(), read.bytes().await.unwrap() == words), (200, true), "{url}");
    assert_eq!(shop.usage().await, (1, 200_000), "counted once");
    shop.let_files_go().await;
    assert_eq!(shop.files(), 1, "of the attempts before nothing is left");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fw3_an_upload_is_completed_though_it_takes_longer_than_a_request() {
    let (shop, wire) = shop_in_a_hurry(Duration::from_secs(4)).await;
    let words = vec![b'w'; 300_000];
    let offer = shop.presign(&new("a.txt", words.len())).await.body;
    let id = text(&offer["objectId"]);
    assert_eq!(shop.put(&offer, &words).await, 200);
    wire.mood.delay_ms.store(500, SeqCst);
    let (nothing, mut refusals) = (json!({}), 0);
    let done = loop {
        let began = clock();
        let done = shop.finalize(&id, &nothing).await;
        shop.t.advance(began.elapsed());
        if done.status == 200 || refusals == 8 {
            break done;
        }
        assert_eq!((done.refusal(), done.header("retry-after")), ((503, "finalize_underway"), "5"), "{}", done.text);
        refusals += 1;
    };
    assert_eq!((done.status, &done.body["status"]), (200, &json!("ready")), "{}", done.text);
    assert!(refusals > 0, "it took longer than one request");
    wire.heal();
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM storage_file";
    let (files,): (i64,) = shop.t.janua.db.one(sql, db::params![]).await.unwrap();
    assert_eq!(files, 2, "what was uploaded, and one copy: no request began anew");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_waits_while_many_others_are_completed() {
    let (shop, _wire) = shop_in_a_hurry(Duration::from_secs(4)).await;
    let offer = shop.presign(&new("a.txt", 5)).await.body;
    let id = text(&offer["objectId"]);
    assert_eq!(shop.put(&offer, b"words").await, 200);
    let turns = &shop.t.janua.own::<Completions>().turns;
    let taken = turns.acquire_many(u32::try_from(turns.available_permits()).unwrap()).await.unwrap();
    let waits = shop.finalize(&id, &json!({})).await;
    assert_eq!((waits.refusal(), waits.header("retry-after")), ((503, "finalize_underway"), "5"), "{}", waits.text);
    drop(taken);
    let done = shop.finalize(&id, &json!({})).await;
    assert_eq!((done.status, &done.body["status"]), (200, &json!("ready")), "{}", done.text);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fw3_a_site_is_served_while_its_bucket_is_away_and_deploys_again_after() {
    let (shop, wire) = shop_behind_a_wire().await;
    let deploy = async |words: &str| {
        let path = format!("/apps/{}/deploy", shop.app);
        let archive = site(&[("index.html", words)]);
        shop.admin.asks(shop.t.post(&path).header("content-type", "application/gzip").body(archive)).await
    };
    let first = deploy("one").await;
    assert_eq!(first.status, 200, "{}", first.text);
    let host = host_of(&first.body["url"]);
    assert_eq!(shows(&shop.t, &host, "/").await, (200, "one".into()));
    wire.mood.is_stopped.store(true, SeqCst);
    is_away("stopped", deploy("two")).await;
    assert_eq!(shows(&shop.t, &host, "/").await, (200, "one".into()));
    wire.heal();
    wire.mood.is_silent.store(true, SeqCst);
    let began = clock();
    is_away("silent", deploy("three")).await;
    // The bucket goes by the clock on the wall, and takes no request of ten seconds ago.
    shop.t.advance(began.elapsed());
    assert_eq!(shows(&shop.t, &host, "/").await, (200, "one".into()));
    wire.heal();
    wire.mood.most.store(20, SeqCst);
    is_away("breaks off", deploy("four")).await;
    assert_eq!(shows(&shop.t, &host, "/").await, (200, "one".into()));
    wire.heal();
    let again = deploy("two").await;
    assert_eq!(again.status, 200, "{}", again.text);
    assert_eq!(shows(&shop.t, &host, "/").await, (200, "two".into()));
    shop.t.run_jobs().await;
    shop.finish().await;
}
