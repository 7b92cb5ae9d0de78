//! Delivery to the servers of recipients' domains, found by a real name server, in the clear and encrypted.
use std::{fs, net::TcpListener, path::Path, process::Stdio, time::Duration};

use kernel::config::Config;

use super::{
    peers::{Certificates, NameServer, SmtpServer},
    *,
};
use crate::{Delivery, Settings};

/// Three servers of one port on different addresses of this machine, and the names that lead there.
struct Post {
    dns: NameServer,
    certificates: Certificates,
    port: u16,
    policy: PolicyServer,
}

/// Serves the file of a policy over TLS, by openssl.
struct PolicyServer {
    process: std::process::Child,
    port: u16,
}

impl Drop for PolicyServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl PolicyServer {
    fn start(folder: &Path) -> Self {
        let port = TcpListener::bind("127.0.0.5:0").unwrap().local_addr().unwrap().port();
        fs::create_dir_all(folder.join(".well-known")).unwrap();
        let args = format!("s_server -accept 127.0.0.5:{port} -cert policy.pem -key key.pem -HTTP");
        let mut command = std::process::Command::new("openssl");
        command
            .current_dir(folder)
            .args(args.split(' '))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self { process: command.spawn().expect("openssl"), port }
    }
}

impl Post {
    async fn start() -> Self {
        let certificates = Certificates::make(&["mx1.example.test", "mx2.example.test"], "mta-sts.example.test");
        let policy = PolicyServer::start(certificates.folder());
        let port = TcpListener::bind("127.0.0.2:0").unwrap().local_addr().unwrap().port();
        Self { dns: NameServer::start().await, certificates, port, policy }
    }

    fn config(&self) -> Config {
        let (port, policy) = (self.port.into(), self.policy.port.into());
        Config {
            dns_servers: vec![([127, 0, 0, 1], self.dns.port).into()],
            outgoing_ca: Some(self.certificates.folder().join("ca.pem")),
            ..Config::for_tests()
        }
        .with(move |settings: &mut Settings| {
            settings.email_delivery = Delivery::Direct;
            settings.email_direct_port = port;
            settings.email_policy_port = policy;
            settings.email_hello = Some("mail.janua.test".into());
            settings.email_allow_nets = vec!["127.0.0.0/8".parse().unwrap()];
        })
    }

    fn server(&self, address: &str, host: Option<&str>) -> SmtpServer {
        let keys = host.map(|host| (self.certificates.of(host), self.certificates.key()));
        SmtpServer::start_at(address, self.port, keys.as_ref())
    }

    fn say_policy(&self, text: &str) {
        let answer = format!("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n{}", text.replace('\n', "\r\n"));
        fs::write(self.certificates.folder().join(".well-known/mta-sts.txt"), answer).unwrap();
    }
}

const SERVERS: &[&str] = &[
    "mx1 1 IN A 127.0.0.2",
    "mx2 1 IN A 127.0.0.3",
    "mta-sts 1 IN A 127.0.0.5",
    "@ 1 IN MX 10 mx1",
    "@ 1 IN MX 20 mx2",
    "none 1 IN MX 0 .",
    "bare 1 IN A 127.0.0.3",
    "empty 1 IN TXT \"nothing else\"",
    "inside 1 IN MX 10 private",
    "private 1 IN A 10.0.0.1",
];

fn zone(more: &[&str]) -> Vec<String> {
    SERVERS.iter().chain(more).map(|line| (*line).to_owned()).collect()
}

async fn status(t: &TestJanua, sent: &Answer) -> (String, String) {
    let sql = "SELECT status || '|' || COALESCE(answer, '') FROM email_recipient WHERE message_id = $1";
    let id = sent.body["messageId"].as_str().unwrap_or_else(|| panic!("{}", sent.text));
    let (both,): (String,) = t.janua.db.one(sql, db::params![id]).await.unwrap();
    let (status, answer) = both.split_once('|').unwrap();
    (status.to_owned(), answer.to_owned())
}

#[tokio::test]
async fn mail_goes_to_the_best_server_that_answers_and_domains_that_take_none_bounce() {
    let mut post = Post::start().await;
    post.dns.say(&zone(&[])).await;
    let t = TestJanua::start_with(post.config(), feature).await;
    let shop = Shop::ready(&t, "ada@example.com", "mail.sender.test").await;
    // The first one is away: the second takes it, and the recipient's own server has it.
    let second = post.server("127.0.0.3", None);
    let sent = shop.sends(&t, &mail("zoe@example.test")).await;
    deliver(&t).await;
    assert_eq!(status(&t, &sent).await.0, "delivered", "{:?}", status(&t, &sent).await);
    assert_eq!(second.received().len(), 1);
    let first = post.server("127.0.0.2", None);
    let sent = shop.sends(&t, &mail("zoe@example.test")).await;
    deliver(&t).await;
    assert_eq!((status(&t, &sent).await.0.as_str(), first.received().len()), ("delivered", 1), "the best one first");
    assert!(first.hellos().contains("mail.janua.test"), "{}", first.hellos());
    // It says no for now: another one is asked only where nothing was handed over.
    first.mood("mail 421 4.3.2 closing");
    let sent = shop.sends(&t, &mail("zoe@example.test")).await;
    deliver(&t).await;
    assert_eq!((status(&t, &sent).await.0.as_str(), second.received().len()), ("delivered", 2));
    first.mood("rcpt 550 5.1.1 no such user");
    let sent = shop.sends(&t, &mail("nobody@example.test")).await;
    deliver(&t).await;
    assert_eq!(status(&t, &sent).await.0, "bounced");
    assert_eq!(second.received().len(), 2, "its word about the recipient counts");
    first.mood("message keep-then-cut");
    let sent = shop.sends(&t, &mail("zoe@example.test")).await;
    deliver(&t).await;
    assert_eq!(status(&t, &sent).await.0, "deferred", "nobody knows: not the next server, but again later");
    first.mood("");
    for (domain, expected, words) in [
        ("none.example.test", "bounced", "5.1.10"),
        ("missing.example.test", "bounced", "5.1.2"),
        ("empty.example.test", "bounced", "5.1.2"),
        ("bare.example.test", "delivered", "250"),
        ("inside.example.test", "deferred", "private or reserved"),
        ("elsewhere.zone", "deferred", "no name server"),
    ] {
        let sent = shop.sends(&t, &mail(&format!("zoe@{domain}"))).await;
        deliver(&t).await;
        let (status, answer) = status(&t, &sent).await;
        assert!(status == expected && answer.contains(words), "{domain}: {status} {answer}");
    }
    t.advance(Duration::from_mins(10));
    deliver(&t).await;
    let mails = [first.received(), second.received()].concat();
    let ids = |mail: &String| mail.lines().find(|line| line.starts_with("Message-ID: ")).unwrap().to_owned();
    let mut ids: Vec<String> = mails.iter().map(ids).collect();
    let all = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(all - ids.len(), 1, "one copy more, under the same Message-ID");
    t.finish().await;
}

#[tokio::test]
async fn encryption_is_taken_where_it_is_offered_whoever_holds_the_key() {
    let mut post = Post::start().await;
    post.dns.say(&zone(&[])).await;
    let t = TestJanua::start_with(post.config(), feature).await;
    let shop = Shop::ready(&t, "ada@example.com", "mail.sender.test").await;
    // The key of another host, which nobody asks for without a policy.
    let first = post.server("127.0.0.2", Some("mx2.example.test"));
    let sent = shop.sends(&t, &mail("zoe@example.test")).await;
    deliver(&t).await;
    assert_eq!(status(&t, &sent).await.0, "delivered", "{:?}", status(&t, &sent).await);
    assert_eq!(first.encrypted(), [true]);
    // An offer that fails: in the clear, as without one.
    drop(first);
    let broken = SmtpServer::start_at("127.0.0.2", post.port, Some(&("broken".into(), "broken".into())));
    t.advance(Duration::from_mins(1));
    let sent = shop.sends(&t, &mail("zoe@example.test")).await;
    deliver(&t).await;
    assert_eq!((status(&t, &sent).await.0.as_str(), broken.encrypted()), ("delivered", vec![false]));
    t.finish().await;
}

#[tokio::test]
async fn a_policy_is_fetched_kept_and_enforced() {
    let mut post = Post::start().await;
    let t = TestJanua::start_with(post.config(), feature).await;
    let shop = Shop::ready(&t, "ada@example.com", "mail.sender.test").await;
    let try_one = async |t: &TestJanua| {
        // What this node remembers of a domain ends, and a lane that rests goes on.
        t.advance(Duration::from_mins(40));
        t.janua.db.exec("UPDATE email_lane SET held_until = 0, failures = 0", db::params![]).await.unwrap();
        let sent = shop.sends(t, &mail("zoe@example.test")).await;
        deliver(t).await;
        status(t, &sent).await
    };
    let policy = |mode: &str, server: &str| format!("version: STSv1\nmode: {mode}\nmx: {server}\nmax_age: 86400\n");
    let wrong = post.server("127.0.0.2", Some("mx2.example.test"));
    // Only testing: nothing is refused.
    post.say_policy(&policy("testing", "mx9.example.test"));
    post.dns.say(&zone(&["_mta-sts 1 IN TXT \"v=STSv1; id=1;\""])).await;
    assert_eq!(try_one(&t).await.0, "delivered");
    // Enforced: a server must hold the key of its own name, and be named.
    post.say_policy(&policy("enforce", "mx1.example.test"));
    post.dns.say(&zone(&["_mta-sts 1 IN TXT \"v=STSv1; id=2;\""])).await;
    let (status, answer) = try_one(&t).await;
    assert_eq!(status, "deferred", "a certificate of another name: {answer}");
    assert_eq!(wrong.received().len(), 1, "nothing in the clear instead");
    drop(wrong);
    let right = post.server("127.0.0.2", Some("mx1.example.test"));
    let (status, answer) = try_one(&t).await;
    assert_eq!((status.as_str(), right.encrypted().last()), ("delivered", Some(&true)), "{answer}");
    // The record is gone and the file, too: what was fetched counts for as long as it said.
    fs::remove_file(post.certificates.folder().join(".well-known/mta-sts.txt")).unwrap();
    post.dns.say(&zone(&[])).await;
    drop(right);
    let clear = post.server("127.0.0.2", None);
    let (status, answer) = try_one(&t).await;
    assert_eq!((status.as_str(), clear.received().len()), ("deferred", 0), "it offers no encryption: {answer}");
    // A day later it has ended, and nothing is demanded any more.
    t.advance(Duration::from_hours(25));
    assert_eq!(try_one(&t).await.0, "delivered");
    // A policy that names none of the servers stops delivery.
    post.say_policy(&policy("enforce", "*.other.test"));
    post.dns.say(&zone(&["_mta-sts 1 IN TXT \"v=STSv1; id=3;\""])).await;
    let (status, answer) = try_one(&t).await;
    assert!(status == "deferred" && answer.contains("MTA-STS"), "{status} {answer}");
    // None is a policy that demands nothing.
    post.say_policy("version: STSv1\nmode: none\nmax_age: 86400\n");
    post.dns.say(&zone(&["_mta-sts 1 IN TXT \"v=STSv1; id=4;\""])).await;
    assert_eq!(try_one(&t).await.0, "delivered");
    t.finish().await;
}
