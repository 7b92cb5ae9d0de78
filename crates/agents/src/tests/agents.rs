//! Agents and their wallets.
use std::time::Duration;

use axum::http::Method;
use db::{params, testing::TestDb};
use k256::{Scalar, ecdsa::Signature, elliptic_curve::PrimeField as _};

use super::actors::*;

#[tokio::test]
async fn an_agent_registers_proves_its_wallet_and_uses_its_token() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let wallet = EvmWallet::new(1);
    t.happened().await;
    let made = register(&t, &ada, &wallet.address(), json!({ "scopes": ["orders:read", "orders:write"] })).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let agent = &made.body["agent"];
    assert_eq!((&agent["status"], &agent["provenAt"]), (&json!("pending"), &Value::Null));
    assert_eq!(text(&agent["wallet"]).to_lowercase(), wallet.address());
    let lookup = format!("/verify/agent/{}", wallet.address());
    assert_eq!(t.get(&lookup).await.body, json!({ "verified": false }), "a claim proves nothing");

    let id = text(&agent["id"]);
    let token = agent_token(&t, &wallet, &id).await;
    assert_eq!(token.status, 200, "{}", token.text);
    assert_eq!((&token.body["tokenType"], &token.body["expiresIn"]), (&json!("Bearer"), &json!(900)));
    assert_eq!(token.body["scope"], "orders:read orders:write");
    assert_eq!(token.body["agent"]["status"], "active");
    let access = text(&token.body["accessToken"]);
    let payload = access.split('.').nth(1).unwrap();
    let claims: Value =
        serde_json::from_slice(&data_encoding::BASE64URL_NOPAD.decode(payload.as_bytes()).unwrap()).unwrap();
    let mut names: Vec<_> = claims.as_object().unwrap().keys().cloned().collect();
    names.sort();
    let expected = ["aud", "client_id", "exp", "gen", "iat", "iss", "jti", "orgId", "owner", "scope", "sub", "type"];
    assert_eq!(names, expected, "no email, no session, no role");
    assert_eq!((&claims["type"], &claims["sub"], &claims["aud"]), (&json!("agent"), &json!(id), &claims["iss"]));

    let seen = me(&t, &access).await;
    assert_eq!((seen.status, &seen.body["id"], &seen.body["type"]), (200, &json!(id), &json!("agent")));
    let found = t.get(&lookup).await;
    assert_eq!(
        (found.body.clone(), found.header("cache-control")),
        (json!({ "verified": true }), "public, max-age=30")
    );
    let again = t.get(&lookup).header("if-none-match", found.header("etag")).await;
    assert_eq!(again.status, 304);
    let details = t.get(&format!("{lookup}?details=true")).await.body;
    assert_eq!((&details["status"], &details["verified"]), (&json!("active"), &json!(true)));
    assert_eq!(me(&t, details["proof"].as_str().unwrap()).await.status, 401, "a proof is no access token");
    t.expects(&["ORG_CREATED", "AGENT_REGISTERED", "AGENT_PROVEN", "AGENT_TOKEN_ISSUED"]).await;
    let log = ada.asks(t.get(&format!("/agent/{id}/logs?limit=2"))).await;
    assert_eq!(log.body["logs"][0]["type"], "AGENT_TOKEN_ISSUED");
    assert_eq!(
        (&log.body["logs"][0]["result"], &log.body["logs"][0]["scope"]),
        (&json!("issued"), &json!("orders:read orders:write"))
    );
    assert!(log.body["nextCursor"].is_string());
    let list = ada.asks(t.get("/agent/list?state=active")).await;
    assert_eq!(list.body["agents"][0]["id"], json!(id));
    assert_eq!(ada.asks(t.get("/agent/list?state=suspended")).await.body["agents"], json!([]));
    t.finish().await;
}

#[tokio::test]
async fn the_text_to_sign_is_that_of_eip_4361() {
    let t = start().await;
    let wallet = EvmWallet::new(1);
    let id = "019c137e-c107-7f36-aa03-c8508b253019";
    let body = json!({ "wallet": wallet.address(), "chainId": 137, "agentId": id, "resource": "https://api.example.com/v1", "scopes": ["a:b"] });
    let asked = challenge(&t, body).await;
    let message = text(&asked["message"]);
    let lines: Vec<&str> = message.lines().collect();
    assert!(lines[0].ends_with(" wants you to sign in with your Ethereum account:"), "{message}");
    assert_eq!(lines[1].to_lowercase(), wallet.address());
    assert_ne!(lines[1], wallet.address(), "with its checksum");
    assert_eq!((lines[2], lines[4], lines[6]), ("", "", "Version: 1"));
    assert_eq!(lines[7], "Chain ID: 137");
    assert!(lines[8].strip_prefix("Nonce: ").is_some_and(|nonce| nonce.len() == 22), "{message}");
    assert_eq!(lines[9], "Issued At: 2026-01-31T10:00:00.000Z");
    assert_eq!(lines[10], "Expiration Time: 2026-01-31T10:05:00.000Z");
    assert_eq!(lines[11], format!("Request ID: {id}"));
    assert_eq!(lines[12..], ["Resources:", "- https://api.example.com/v1", "- urn:janua:scope:a:b"]);
    for (field, wrong) in [("resource", json!("https://a.example/\nNonce: x")), ("scopes", json!(["a\nb"]))] {
        let mut body = json!({ "wallet": wallet.address() });
        body[field] = wrong;
        assert_eq!(t.post("/agent/challenge").json(&body).await.status, 400, "{field}");
    }
    let solana = challenge(&t, json!({ "wallet": "4Nd1mBQtrMJVYVfKf2PJy9NZUZdTAsp7D4xWLs4gDB4T" })).await;
    assert!(
        text(&solana["message"]).contains("your Solana account:\n4Nd1mBQtrMJVYVfKf2PJy9NZUZdTAsp7D4xWLs4gDB4T\n")
    );
    t.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m01_a_challenge_counts_once() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let wallet = EvmWallet::new(1);
    let (id, _) = live_agent(&t, &ada, &wallet, json!({})).await;
    let asked = challenge(&t, json!({ "wallet": wallet.address(), "agentId": id })).await;
    let signature = wallet.sign(asked["message"].as_str().unwrap());
    let wrong = EvmWallet::new(2).sign(asked["message"].as_str().unwrap());
    assert_eq!(redeem(&t, &asked, &wrong).await.refusal(), (401, "bad_signature"), "which does not burn it");
    let other = if TestDb::on_postgres() { Some(t.another_node(feature).await) } else { None };
    let nodes = [&t, other.as_ref().unwrap_or(&t)];
    let answers = join_all((0..32).map(|i| redeem(nodes[i % 2], &asked, &signature))).await;
    let good = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!(good, 1);
    for answer in answers.iter().filter(|answer| answer.status != 200) {
        assert_eq!(answer.refusal(), (410, "challenge_spent"));
    }
    drop(other);
    let t = t.restart(feature).await;
    assert_eq!(redeem(&t, &asked, &signature).await.refusal(), (410, "challenge_spent"), "after a restart");
    t.finish().await;
}

#[tokio::test]
async fn m02_a_signature_counts_for_its_own_text_alone() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let wallet = EvmWallet::new(1);
    let made = register(&t, &ada, &wallet.address(), json!({})).await;
    let id = text(&made.body["agent"]["id"]);
    t.happened().await;
    let asked = challenge(&t, json!({ "wallet": wallet.address(), "agentId": id })).await;
    let message = text(&asked["message"]);
    let host = message.split(' ').next().unwrap();
    let altered = [
        message.replace(host, "evil.example"),
        message.replace("/agent/token", "/agent/tokens"),
        message.replace("Chain ID: 1", "Chain ID: 10"),
        message.replace("Nonce: ", "Nonce: 0"),
        message.replace(&id, "019c137e-c107-7f36-aa03-c8508b253019"),
        format!("{message} "),
        format!("{message}\n"),
    ];
    for text in altered {
        assert_ne!(text, message);
        assert_eq!(redeem(&t, &asked, &wallet.sign(&text)).await.refusal(), (401, "bad_signature"), "{text}");
    }
    let other = challenge(&t, json!({ "wallet": EvmWallet::new(2).address() })).await;
    assert_eq!(redeem(&t, &other, &wallet.sign(&text(&other["message"]))).await.status, 401, "another wallet");
    let body = json!({ "challenge": asked["challenge"], "signature": wallet.sign(&message), "message": format!("{message} ") });
    assert_eq!(t.post("/agent/token").json(&body).await.refusal(), (401, "bad_signature"));
    t.expects(&[]).await;
    let (count,): (i64,) = t
        .janua
        .db
        .one("SELECT CAST(COUNT(*) AS BIGINT) FROM once WHERE purpose = 'agent_challenge'", params![])
        .await
        .unwrap();
    assert_eq!(count, 0, "nothing was written");
    t.finish().await;
}

#[tokio::test]
async fn m03_odd_signatures_are_refused() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let wallet = EvmWallet::new(1);
    let (id, _) = live_agent(&t, &ada, &wallet, json!({})).await;
    let asked = challenge(&t, json!({ "wallet": wallet.address(), "agentId": id })).await;
    let right = wallet.sign_bytes(asked["message"].as_str().unwrap());
    let hex = |bytes: &[u8]| format!("0x{}", data_encoding::HEXLOWER.encode(bytes));
    let with = |place: std::ops::Range<usize>, value: &[u8]| {
        let mut bytes = right.clone();
        bytes.splice(place, value.iter().copied());
        hex(&bytes)
    };
    // The twin of the signature: -s, and the other v.
    let s = Option::<Scalar>::from(Scalar::from_repr(<[u8; 32]>::try_from(&right[32..64]).unwrap().into())).unwrap();
    let twin = (-s).to_bytes();
    let mut high = right.clone();
    high.splice(32..64, twin.iter().copied());
    high[64] = 27 + (28 - right[64]);
    let order =
        data_encoding::HEXUPPER.decode(b"FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141").unwrap();
    let mut odd =
        vec![hex(&high), with(0..32, &[0; 32]), with(32..64, &[0; 32]), with(0..32, &order), with(32..64, &order)];
    odd.extend([2, 26, 29, 255].map(|v| with(64..65, &[v])));
    odd.extend([hex(&right[..64]), with(64..64, &[0]), hex(&[]), "0xzz".into(), hex(&right)[2..].to_owned()]);
    for signature in odd {
        assert_eq!(redeem(&t, &asked, &signature).await.refusal(), (401, "bad_signature"), "{signature}");
    }
    // The twin is right in every other sense.
    assert!(Signature::from_slice(&high[..64]).is_ok());
    let plain = with(64..65, &[right[64] - 27]);
    assert_eq!(redeem(&t, &asked, &plain).await.status, 200, "v may be 0 or 1");
    t.finish().await;
}

#[tokio::test]
async fn m05_several_first_tokens_at_once_are_all_given() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let wallet = EvmWallet::new(1);
    let id = text(&register(&t, &ada, &wallet.address(), json!({})).await.body["agent"]["id"]);
    let tokens = tokio::join!(
        agent_token(&t, &wallet, &id),
        agent_token(&t, &wallet, &id),
        agent_token(&t, &wallet, &id),
        agent_token(&t, &wallet, &id),
    );
    for answer in [tokens.0, tokens.1, tokens.2, tokens.3] {
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    t.finish().await;
}

#[tokio::test]
async fn m05_a_claim_blocks_nobody_and_one_agent_has_a_wallet() {
    let t = start().await;
    let (eve, bob) = (signed_in(&t, "eve@example.com").await, signed_in(&t, "bob@example.com").await);
    let wallet = EvmWallet::new(1);
    let hers = text(&register(&t, &eve, &wallet.address(), json!({})).await.body["agent"]["id"]);
    let his = text(&register(&t, &bob, &wallet.address(), json!({})).await.body["agent"]["id"]);
    let unclear = challenge(&t, json!({ "wallet": wallet.address() })).await;
    let answer = redeem(&t, &unclear, &wallet.sign(&text(&unclear["message"]))).await;
    assert_eq!(answer.refusal(), (409, "several_agents"), "a signature that names no agent activates none of them");
    assert_eq!(agent_token(&t, &wallet, &his).await.status, 200);
    assert_eq!(agent_token(&t, &wallet, &hers).await.refusal(), (409, "wallet_taken"));
    let late = register(&t, &eve, &wallet.address(), json!({})).await;
    assert_eq!(late.refusal(), (409, "wallet_taken"));
    let details = t.get(&format!("/verify/agent/{}?details=true", wallet.address())).await;
    assert_eq!(details.body["verified"], true);
    assert_eq!(bob.asks(t.get(&format!("/agent/{hers}"))).await.status, 404);
    t.advance(Duration::from_hours(8 * 24));
    t.run_jobs().await;
    let eve = Person::of(&login(&t, "eve@example.com", PASSWORD).await);
    assert_eq!(eve.asks(t.get("/agent/list")).await.body["agents"], json!([]), "what was never proven is gone");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn m06_a_challenge_expires_and_cannot_be_altered() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let wallet = EvmWallet::new(1);
    let (id, _) = live_agent(&t, &ada, &wallet, json!({})).await;
    let asked = challenge(&t, json!({ "wallet": wallet.address(), "agentId": id })).await;
    let signature = wallet.sign(&text(&asked["message"]));
    let mut altered = text(&asked["challenge"]);
    altered.replace_range(30..31, if &altered[30..31] == "A" { "B" } else { "A" });
    assert_eq!(redeem(&t, &json!({ "challenge": altered }), &signature).await.refusal(), (400, "malformed"));
    assert_eq!(redeem(&t, &json!({ "challenge": "x" }), &signature).await.refusal(), (400, "malformed"));
    assert_eq!(ada.asks(t.ask(Method::DELETE, &format!("/agent/{id}"))).await.status, 204);
    assert_eq!(redeem(&t, &asked, &signature).await.refusal(), (403, "agent_not_registered"));
    let asked = challenge(&t, json!({ "wallet": wallet.address() })).await;
    t.advance(Duration::from_secs(301));
    let signature = wallet.sign(&text(&asked["message"]));
    assert_eq!(redeem(&t, &asked, &signature).await.refusal(), (410, "challenge_spent"));
    t.finish().await;
}

#[tokio::test]
async fn m07_tokens_of_machines_and_users_open_only_their_own_routes() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let (id, token) = live_agent(&t, &ada, &EvmWallet::new(1), json!({})).await;
    let helper = framework(&t, &ada, json!({ "scopes": ["a"] })).await;
    let other = framework_token(&t, &helper).await;
    for token in [&token, &other] {
        let bearer = format!("Bearer {token}");
        for path in [
            "/auth/me",
            "/apps",
            "/agent/list",
            "/framework-agent",
            "/mcp/list",
            "/user/orgs",
            "/scim/v2/Users",
            "/oauth/userinfo",
        ] {
            assert_eq!(t.get(path).header("authorization", &bearer).await.status, 401, "{path}");
        }
        assert_eq!(t.get("/auth/me").header("cookie", &format!("service_access={token}")).await.status, 401);
        let suspend = t.post(&format!("/agent/{id}/suspend")).header("authorization", &bearer).await;
        assert_eq!(suspend.status, 401);
        assert_eq!(t.post("/auth/refresh").json(&json!({ "refreshToken": token })).await.status, 401);
        assert_eq!(
            t.post("/auth/login")
                .header("x-service-app-key", token)
                .json(&json!({ "email": "a@b.c", "password": "x" }))
                .await
                .status,
            401
        );
        assert_eq!(me(&t, token).await.status, 200);
    }
    assert_eq!(me(&t, &ada.access).await.refusal(), (401, "unauthenticated"), "and the reverse");
    t.finish().await;
}

#[tokio::test]
async fn m08_suspension_ends_every_token_for_good() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let wallet = EvmWallet::new(1);
    let (id, old) = live_agent(&t, &ada, &wallet, json!({})).await;
    let key = app_key(&t, &ada).await;
    assert!(is_active(&t, &key, &old).await);
    t.happened().await;
    let answer = suspend(&t, &ada, &format!("/agent/{id}/suspend")).await;
    assert_eq!((answer.status, &answer.body["agent"]["suspendedBy"]), (200, &json!("owner")), "{}", answer.text);
    assert_eq!(suspend(&t, &ada, &format!("/agent/{id}/suspend")).await.status, 200);
    t.expects(&["AGENT_SUSPENDED"]).await;
    assert_eq!(me(&t, &old).await.status, 401);
    assert!(!is_active(&t, &key, &old).await);
    assert_eq!(t.get(&format!("/verify/agent/{}", wallet.address())).await.body["verified"], false);
    for _ in 0..3 {
        assert_eq!(agent_token(&t, &wallet, &id).await.refusal(), (403, "agent_suspended"));
    }
    t.expects(&["AGENT_TOKEN_REFUSED"]).await;
    let answer = ada.asks(t.post(&format!("/agent/{id}/reactivate"))).await;
    assert_eq!((answer.status, &answer.body["agent"]["status"]), (200, &json!("active")), "{}", answer.text);
    assert_eq!(me(&t, &old).await.status, 401, "dead stays dead");
    let fresh = text(&agent_token(&t, &wallet, &id).await.body["accessToken"]);
    assert_eq!(me(&t, &fresh).await.status, 200);
    let t = t.restart(feature).await;
    assert_eq!((me(&t, &old).await.status, me(&t, &fresh).await.status), (401, 200), "after a restart, too");
    let change = json!({ "expiresAt": "2026-01-31T10:10:00.000Z" });
    assert_eq!(ada.asks(t.ask(Method::PATCH, &format!("/agent/{id}")).json(&change)).await.status, 200);
    t.advance(Duration::from_secs(601));
    assert_eq!(me(&t, &fresh).await.status, 401, "expired");
    assert_eq!(agent_token(&t, &wallet, &id).await.refusal(), (403, "agent_expired"));
    t.finish().await;
}

#[tokio::test]
async fn m08_suspension_reaches_another_node_within_a_second() {
    if !TestDb::on_postgres() {
        // An embedded database has one node.
        return;
    }
    let t = start().await;
    let other = t.another_node(feature).await;
    let ada = signed_in(&t, "ada@example.com").await;
    let (id, token) = live_agent(&t, &ada, &EvmWallet::new(1), json!({})).await;
    let key = app_key(&t, &ada).await;
    assert_eq!(me(&other, &token).await.status, 200, "any node takes it, and remembers it");
    assert!(is_active(&other, &key, &token).await);
    assert_eq!(suspend(&t, &ada, &format!("/agent/{id}/suspend")).await.status, 200);
    let gone = async {
        while me(&other, &token).await.status != 401 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(1), gone).await.expect("within a second");
    assert!(!is_active(&other, &key, &token).await);
    drop(other);
    t.finish().await;
}

/// Puts somebody into the organization of an agent.
async fn join(t: &TestJanua, agent: &str, person: &Person, role: &str) {
    let sql = "INSERT INTO org_member (org_id, account_id, role, joined_at) SELECT org_id, $2, $3, 0 FROM machine WHERE id = $1";
    t.janua.db.exec(sql, params![agent, &person.id, role]).await.unwrap();
}

#[tokio::test]
async fn m09_reactivating_needs_the_rank_of_who_suspended() {
    let config = Config::for_tests()
        .with(|tenancy: &mut tenancy::Settings| tenancy.platform_owners = vec!["root@example.com".into()]);
    let t = TestJanua::start_with(config, feature).await;
    let [boss, ada, admin, member, eve, root] =
        ["boss", "ada", "admin", "member", "eve", "root"].map(|name| format!("{name}@example.com"));
    let boss = signed_in(&t, &boss).await;
    let org = text(&boss.asks(t.post("/org").json(&json!({ "name": "Acme" }))).await.body["id"]);
    let ada = signed_in(&t, &ada).await;
    let sql = "INSERT INTO org_member (org_id, account_id, role, joined_at) VALUES ($1, $2, 'member', 0)";
    t.janua.db.exec(sql, params![&org, &ada.id]).await.unwrap();
    let (id, token) = live_agent(&t, &ada, &EvmWallet::new(1), json!({ "orgId": org })).await;
    let (admin, member) = (signed_in(&t, &admin).await, signed_in(&t, &member).await);
    join(&t, &id, &admin, "admin").await;
    join(&t, &id, &member, "member").await;
    let (eve, root) = (signed_in(&t, &eve).await, signed_in(&t, &root).await);
    let (off, on) = (format!("/agent/{id}/suspend"), format!("/agent/{id}/reactivate"));
    for (who, person) in [("a stranger", &eve), ("a member", &member)] {
        for path in [&off, &on] {
            assert_eq!(suspend(&t, person, path).await.refusal(), (404, "not_found"), "{who} {path}");
        }
        assert_eq!(person.asks(t.get(&format!("/agent/{id}/logs"))).await.status, 404, "{who}");
        assert_eq!(person.asks(t.ask(Method::DELETE, &format!("/agent/{id}"))).await.status, 404, "{who}");
    }
    assert_eq!(member.asks(t.get(&format!("/agent/list?orgId={org}"))).await.status, 403);
    assert_eq!(eve.asks(t.get(&format!("/agent/list?orgId={org}"))).await.status, 404);
    assert_eq!(admin.asks(t.get(&format!("/agent/list?orgId={org}"))).await.body["agents"][0]["id"], json!(id));
    assert_eq!(suspend(&t, &admin, &off).await.body["agent"]["suspendedBy"], "org_admin");
    assert_eq!(suspend(&t, &ada, &on).await.refusal(), (403, "suspended_by_admin"));
    // Deleting it and registering the wallet again would be another way.
    let delete = async |person: &Person| person.asks(t.ask(Method::DELETE, &format!("/agent/{id}"))).await;
    assert_eq!(delete(&ada).await.refusal(), (403, "suspended_by_admin"));
    let again = register(&t, &ada, &EvmWallet::new(1).address(), json!({})).await;
    assert_eq!(again.refusal(), (409, "wallet_taken"));
    assert_eq!(suspend(&t, &admin, &on).await.status, 200);
    assert_eq!(suspend(&t, &ada, &off).await.body["agent"]["suspendedBy"], "owner");
    assert_eq!(suspend(&t, &root, &off).await.body["agent"]["suspendedBy"], "platform", "a higher rank takes over");
    assert_eq!(root.asks(t.get(&format!("/agent/{id}"))).await.status, 404, "and sees nothing else");
    assert_eq!(suspend(&t, &admin, &on).await.refusal(), (403, "suspended_by_admin"));
    for person in [&ada, &admin, &boss] {
        assert_eq!(delete(person).await.refusal(), (403, "suspended_by_admin"));
    }
    assert_eq!(suspend(&t, &root, &on).await.status, 200);
    assert_eq!(me(&t, &token).await.status, 401);

    // An owner who leaves: the agent is suspended in the same commit, and an admin who reactivates it owns it.
    let fresh = text(&agent_token(&t, &EvmWallet::new(1), &id).await.body["accessToken"]);
    t.happened().await;
    let out = boss.asks(t.ask(Method::DELETE, &format!("/org/{org}/members/{}", ada.id))).await;
    assert_eq!(out.status, 204, "{}", out.text);
    t.expects(&["AGENT_SUSPENDED", "MEMBER_REMOVED"]).await;
    assert_eq!(me(&t, &fresh).await.status, 401);
    for path in [&off, &on] {
        assert_eq!(suspend(&t, &ada, path).await.status, 404, "an ex-member");
    }
    let answer = suspend(&t, &admin, &on).await;
    assert_eq!((answer.status, &answer.body["agent"]["ownerId"]), (200, &json!(admin.id)), "{}", answer.text);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn an_account_that_is_deleted_leaves_no_live_agent() {
    let t = start().await;
    let (boss, ada) = (signed_in(&t, "boss@example.com").await, signed_in(&t, "ada@example.com").await);
    let org = text(&boss.asks(t.post("/org").json(&json!({ "name": "Acme" }))).await.body["id"]);
    let sql = "INSERT INTO org_member (org_id, account_id, role, joined_at) VALUES ($1, $2, 'member', 0)";
    t.janua.db.exec(sql, params![&org, &ada.id]).await.unwrap();
    let (id, token) = live_agent(&t, &ada, &EvmWallet::new(1), json!({ "orgId": org })).await;
    let gone = ada.asks(t.ask(Method::DELETE, "/auth/me").json(&json!({ "password": PASSWORD }))).await;
    assert!((200..300).contains(&gone.status), "{}", gone.text);
    assert_eq!(me(&t, &token).await.status, 401);
    let seen = boss.asks(t.get(&format!("/agent/{id}"))).await;
    assert_eq!(
        (&seen.body["agent"]["suspendedBy"], &seen.body["agent"]["ownerId"]),
        (&json!("owner_gone"), &Value::Null),
        "{}",
        seen.text
    );
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn an_owner_whom_the_directory_switches_off_leaves_no_live_agent() {
    let t = start().await;
    let boss = signed_in(&t, "boss@example.com").await;
    let org = text(&boss.asks(t.post("/org").json(&json!({ "name": "Acme" }))).await.body["id"]);
    let made = boss.asks(t.post(&format!("/org/{org}/scim-tokens")).json(&json!({ "name": "Okta" }))).await;
    let scim = format!("Bearer {}", text(&made.body["value"]));
    let ada = signed_in(&t, "ada@example.com").await;
    let user = json!({ "schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "userName": "ada@example.com",
                       "emails": [{ "value": "ada@example.com", "primary": true }] });
    let send = async |method: &str, path: &str, body: &Value| {
        let ask = t.ask(method.parse().unwrap(), path).header("authorization", &scim);
        ask.header("content-type", "application/scim+json").body(body.to_string()).await
    };
    let user = send("POST", "/scim/v2/Users", &user).await;
    assert_eq!(user.status, 201, "{}", user.text);
    t.run_jobs().await;
    let token = identity::testing::token_in(&mail_to(&t, "ada@example.com").unwrap());
    assert_eq!(ada.asks(t.post("/auth/accept-invite").json(&json!({ "token": token }))).await.status, 200);
    let (id, token) = live_agent(&t, &ada, &EvmWallet::new(1), json!({ "orgId": org })).await;
    assert_eq!(me(&t, &token).await.status, 200);
    t.happened().await;
    let off = json!({ "schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"],
                      "Operations": [{ "op": "replace", "path": "active", "value": false }] });
    let off = send("PATCH", &format!("/scim/v2/Users/{}", text(&user.body["id"])), &off).await;
    assert_eq!(off.status, 200, "{}", off.text);
    assert!(t.happened().await.contains(&"AGENT_SUSPENDED".to_owned()));
    assert_eq!(me(&t, &token).await.status, 401);
    let seen = boss.asks(t.get(&format!("/agent/{id}"))).await;
    assert_eq!(seen.body["agent"]["suspendedBy"], "owner_gone", "{}", seen.text);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn m11_a_token_has_no_more_than_its_agent() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let wallet = EvmWallet::new(1);
    let more = json!({ "scopes": ["a:read", "a:write"], "audiences": ["https://a.example/v1"] });
    let (id, _) = live_agent(&t, &ada, &wallet, more).await;
    let ask = async |more: Value| {
        let mut body = json!({ "wallet": wallet.address(), "agentId": id });
        more.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
        let asked = challenge(&t, body).await;
        redeem(&t, &asked, &wallet.sign(&text(&asked["message"]))).await
    };
    let good = ask(json!({ "scopes": ["a:read"], "resource": "https://a.example/v1/orders" })).await;
    assert_eq!((good.status, &good.body["scope"]), (200, &json!("a:read")), "{}", good.text);
    assert_eq!(me(&t, &text(&good.body["accessToken"])).await.body["audience"], "https://a.example/v1/orders");
    assert_eq!(ask(json!({ "scopes": ["a:read", "b"] })).await.refusal(), (400, "invalid_scope"));
    for resource in
        ["https://a.example.evil/v1", "https://a.example:8443/v1", "https://a.example/v12", "https://a.example/"]
    {
        assert_eq!(ask(json!({ "resource": resource })).await.refusal(), (400, "invalid_target"), "{resource}");
    }
    let dots = t
        .post("/agent/challenge")
        .json(&json!({ "wallet": wallet.address(), "resource": "https://a.example/v1/../x" }))
        .await;
    assert_eq!(dots.refusal(), (400, "invalid_target"));
    // Taking a scope away ends what has it.
    let token = text(&good.body["accessToken"]);
    let less = ada.asks(t.ask(Method::PATCH, &format!("/agent/{id}")).json(&json!({ "scopes": ["a:write"] }))).await;
    assert_eq!(less.status, 200, "{}", less.text);
    assert_eq!(me(&t, &token).await.status, 401);
    t.finish().await;
}

#[tokio::test]
async fn every_wrong_field_of_a_registration_is_named() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let more = json!({ "scopes": ["ok", "Not OK"], "audiences": ["ftp://x"], "expiresAt": "2020-01-01T00:00:00.000Z",
        "limits": [{ "meter": "spend", "max": 1, "per": "day" }, { "meter": "spend", "max": 2, "per": "day" }] });
    let wrong = register(&t, &ada, &EvmWallet::new(1).address(), more).await;
    let fields: Vec<_> = wrong.body["errors"].as_array().unwrap().iter().map(|error| text(&error["field"])).collect();
    assert_eq!(fields, ["scopes.1", "audiences.0", "limits.1", "expiresAt"], "{}", wrong.text);
    assert_eq!(register(&t, &ada, "0x12", json!({})).await.refusal(), (400, "invalid_wallet"));
    assert_eq!(
        register(&t, &ada, &EvmWallet::new(1).address(), json!({ "chainId": 99 })).await.refusal(),
        (400, "unsupported_chain")
    );
    assert_eq!(
        register(&t, &ada, &EvmWallet::new(1).address(), json!({ "orgId": "019c137e-c107-7f36-aa03-c8508b253019" }))
            .await
            .status,
        404
    );
    t.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m13_a_limit_is_never_passed_and_suspends_once() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let limits = json!({ "limits": [{ "meter": "spend", "max": 10, "per": "day", "then": "suspend" }] });
    let (id, token) = live_agent(&t, &ada, &EvmWallet::new(1), limits).await;
    let key = app_key(&t, &ada).await;
    t.run_jobs().await;
    let mails = t.mailbox.mails().len();
    t.happened().await;
    let spend = async |amount: i64, repeat: Option<&str>| {
        let body =
            json!({ "token": token, "meter": "spend", "amount": amount, "action": "buy", "idempotencyKey": repeat });
        t.post("/machine/spend").header("x-service-app-key", &key).json(&body).await
    };
    let first = spend(1, Some("order-1")).await;
    assert_eq!((&first.body["allowed"], &first.body["remaining"]), (&json!(true), &json!(9)), "{}", first.text);
    assert_eq!(first.body["resetsAt"], "2026-02-01T00:00:00.000Z");
    let again = spend(1, Some("order-1")).await;
    assert_eq!((&again.body["allowed"], &again.body["remaining"]), (&json!(true), &json!(9)), "counted once");
    assert_eq!(spend(2, Some("order-1")).await.refusal(), (409, "spending_conflict"));
    let answers = join_all((0..64).map(|_| spend(1, None))).await;
    let allowed = answers.iter().filter(|answer| answer.body["allowed"] == true).count();
    assert_eq!(allowed, 9, "ten in all");
    let refused = answers.iter().filter(|answer| answer.body["allowed"] == false).count();
    let dead = answers.iter().filter(|answer| answer.refusal() == (400, "invalid_token")).count();
    assert_eq!((refused, dead), (1, 54), "the first one too many suspends, and the token is dead for the others");
    assert_eq!(t.happened().await, ["AGENT_LIMIT_REACHED", "AGENT_SUSPENDED"]);
    t.run_jobs().await;
    assert_eq!(t.mailbox.mails().len() - mails, 2, "at 80 percent, and when it was suspended");
    let (sum,): (i64,) =
        t.janua.db.one("SELECT CAST(SUM(amount) AS BIGINT) FROM machine_spending", params![]).await.unwrap();
    let (used,): (i64,) = t.janua.db.one("SELECT used FROM machine_meter", params![]).await.unwrap();
    assert_eq!((sum, used), (10, 10), "the ledger and the counter agree");
    let (off, seen) = (format!("/agent/{id}/reactivate"), ada.asks(t.get(&format!("/agent/{id}"))).await);
    assert_eq!(
        (&seen.body["agent"]["suspendedBy"], &seen.body["agent"]["limits"][0]["used"]),
        (&json!("limit"), &json!(10))
    );
    assert_eq!(suspend(&t, &ada, &off).await.refusal(), (429, "agent_limit"), "in the same window");
    let more = json!({ "limits": [{ "meter": "spend", "max": 20, "per": "day", "then": "suspend" }] });
    assert_eq!(ada.asks(t.ask(Method::PATCH, &format!("/agent/{id}")).json(&more)).await.status, 200);
    assert_eq!(suspend(&t, &ada, &off).await.status, 200, "with a higher limit");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_limit_that_is_set_or_raised_within_a_window_counts_what_was_spent() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let (id, token) = live_agent(&t, &ada, &EvmWallet::new(1), json!({})).await;
    let key = app_key(&t, &ada).await;
    let spend = async |amount: i64| {
        let body = json!({ "token": token, "meter": "spend", "amount": amount });
        t.post("/machine/spend").header("x-service-app-key", &key).json(&body).await.body
    };
    let limit = async |limits: Value| {
        let body = json!({ "limits": limits });
        let set = ada.asks(t.ask(Method::PATCH, &format!("/agent/{id}")).json(&body)).await;
        assert_eq!(set.status, 200, "{}", set.text);
        set.body["agent"]["limits"].clone()
    };
    let per_day = |max: i64| json!([{ "meter": "spend", "max": max, "per": "day" }]);
    assert_eq!(spend(7).await["remaining"], Value::Null);
    assert_eq!(limit(per_day(10)).await[0]["used"], 7, "what was spent before the limit");
    assert_eq!(spend(4).await, json!({ "allowed": false, "remaining": 3, "resetsAt": "2026-02-01T00:00:00.000Z" }));
    assert_eq!(spend(3).await["remaining"], 0);
    // Taken off and set again, it is no fresh start.
    limit(json!([])).await;
    assert_eq!(spend(2).await["allowed"], true);
    assert_eq!(limit(per_day(20)).await[0]["used"], 12);
    let sums = async || -> (i64, i64) {
        let (spent,): (i64,) =
            t.janua.db.one("SELECT CAST(SUM(amount) AS BIGINT) FROM machine_spending", params![]).await.unwrap();
        let (used,): (i64,) = t.janua.db.one("SELECT used FROM machine_meter", params![]).await.unwrap();
        (spent, used)
    };
    assert_eq!(spend(1).await["remaining"], 7);
    assert_eq!(sums().await, (13, 13), "the ledger and the counter agree");
    // However much was spent before.
    let sql = "UPDATE machine_spending SET amount = $1";
    t.janua.db.exec(sql, params![9_007_199_254_740_991_i64 << 10]).await.unwrap();
    let month =
        json!([{ "meter": "spend", "max": 20, "per": "day" }, { "meter": "spend", "max": 30, "per": "month" }]);
    assert_eq!(limit(month).await[1]["used"], i64::MAX);
    t.janua.db.exec(sql, params![0]).await.unwrap();
    t.janua
        .db
        .exec("UPDATE machine_spending SET amount = 13 WHERE id = (SELECT MIN(id) FROM machine_spending)", params![])
        .await
        .unwrap();
    limit(per_day(20)).await;
    // A raised limit is mailed and told about anew.
    assert_eq!(spend(8).await["allowed"], false);
    t.run_jobs().await;
    t.happened().await;
    let mails = t.mailbox.mails().len();
    limit(per_day(30)).await;
    assert_eq!(spend(17).await["remaining"], 0);
    assert_eq!(spend(1).await["allowed"], false);
    assert_eq!(spend(1).await["allowed"], false);
    assert_eq!(t.happened().await, ["AGENT_UPDATED", "AGENT_LIMIT_REACHED"]);
    t.run_jobs().await;
    assert_eq!(t.mailbox.mails().len() - mails, 1, "at 80 percent");
    assert_eq!(sums().await, (30, 30));
    t.finish().await;
}

#[tokio::test]
async fn only_a_secret_key_asks_about_a_machine() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let (_, token) = live_agent(&t, &ada, &EvmWallet::new(1), json!({})).await;
    let app = ada.asks(t.post("/apps").json(&json!({ "name": "Shop" }))).await;
    let keys = format!("/apps/{}/keys", text(&app.body["id"]));
    for (kind, is_told) in [("publishable", false), ("secret", true)] {
        let made = ada.asks(t.post(&keys).json(&json!({ "type": kind, "environment": "live" }))).await;
        assert_eq!(is_active(&t, &text(&made.body["value"]), &token).await, is_told, "{kind}");
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn limits_on_tokens_and_requests_refuse_and_reset() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let wallet = EvmWallet::new(1);
    let limits = json!({ "limits": [{ "meter": "tokens", "max": 2, "per": "hour" }, { "meter": "requests", "max": 2, "per": "hour" }] });
    let (id, _) = live_agent(&t, &ada, &wallet, limits).await;
    let key = app_key(&t, &ada).await;
    let second = agent_token(&t, &wallet, &id).await;
    assert_eq!(second.status, 200);
    let third = agent_token(&t, &wallet, &id).await;
    assert_eq!(third.refusal(), (429, "agent_limit"));
    assert_eq!(third.header("retry-after"), "3600");
    let token = text(&second.body["accessToken"]);
    let seen =
        [is_active(&t, &key, &token).await, is_active(&t, &key, &token).await, is_active(&t, &key, &token).await];
    assert_eq!(seen, [true, true, false]);
    assert_eq!(me(&t, &token).await.status, 200, "refused is not suspended");
    t.advance(Duration::from_hours(1));
    assert_eq!(agent_token(&t, &wallet, &id).await.status, 200);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_stranger_learns_nothing_about_a_token() {
    let t = start().await;
    let (ada, eve) = (signed_in(&t, "ada@example.com").await, signed_in(&t, "eve@example.com").await);
    let (_, token) = live_agent(&t, &ada, &EvmWallet::new(1), json!({})).await;
    let key = app_key(&t, &eve).await;
    assert!(!is_active(&t, &key, &token).await);
    let body = json!({ "token": token, "meter": "spend", "amount": 1 });
    let answer = t.post("/machine/spend").header("x-service-app-key", &key).json(&body).await;
    assert_eq!(answer.refusal(), (400, "invalid_token"));
    t.finish().await;
}

#[tokio::test]
async fn challenges_and_tokens_have_a_pace() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let wallet = EvmWallet::new(1);
    let (id, _) = live_agent(&t, &ada, &wallet, json!({})).await;
    let body = json!({ "wallet": wallet.address(), "agentId": id });
    for _ in 1..30 {
        assert_eq!(t.post("/agent/challenge").json(&body).await.status, 200);
    }
    let refused = t.post("/agent/challenge").json(&body).await;
    assert_eq!((refused.refusal(), refused.header("retry-after")), ((429, "rate_limited"), "3"));
    t.advance(Duration::from_mins(2));
    let mut answers = vec![];
    for _ in 0..61 {
        t.advance(Duration::from_millis(2));
        let network = format!("198.51.100.{}", answers.len() + 1);
        let asked = t.post("/agent/challenge").json(&body).from(&network).await.body;
        answers.push(redeem(&t, &asked, &wallet.sign(&text(&asked["message"]))).await.status);
    }
    assert_eq!(answers.iter().filter(|status| **status == 200).count(), 60, "60 a minute, from wherever they come");
    assert_eq!(answers[60], 429);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_counts_on_the_limits_of_an_agent_in_the_same_commit() {
    let t = TestJanua::start(with_usage).await;
    let (ada, eve) = (signed_in(&t, "ada@example.com").await, signed_in(&t, "eve@example.com").await);
    let limits = json!({ "limits": [{ "meter": "api_calls", "max": 10, "per": "day", "then": "suspend" }] });
    let (id, token) = live_agent(&t, &ada, &EvmWallet::new(1), limits).await;
    let (key, foreign) = (app_key(&t, &ada).await, app_key(&t, &eve).await);
    let track =
        async |key: &str, body: Value| t.post("/usage/track").header("x-service-app-key", key).json(&body).await;
    let named = |value: i64| json!({ "meter": "api_calls", "value": value, "agentId": id });
    assert_eq!(track(&foreign, named(1)).await.refusal(), (400, "unknown_agent"));
    let first = track(&key, json!({ "meter": "api_calls", "value": 4, "agentId": id, "eventId": "e1" })).await;
    assert_eq!((first.status, &first.body["accepted"]), (200, &json!(1)), "{}", first.text);
    let again = track(&key, json!({ "meter": "api_calls", "value": 4, "agentId": id, "eventId": "e1" })).await;
    assert_eq!(again.body["duplicates"], 1, "counted once");
    let by_token = async |key: &str, value: i64| {
        let body = json!({ "meter": "api_calls", "value": value });
        let ask = t
            .post("/usage/track")
            .header("x-service-app-key", key)
            .header("authorization", &format!("Bearer {token}"));
        ask.json(&body).await
    };
    assert_eq!(by_token(&key, 2).await.status, 200);
    assert_eq!(by_token(&foreign, 2).await.status, 401, "the token is not for that app");
    let used = async || ada.asks(t.get(&format!("/agent/{id}"))).await.body["agent"]["limits"][0]["used"].clone();
    assert_eq!(used().await, 6);
    let test = json!({ "meter": "api_calls", "value": 9, "agentId": id, "environment": "test" });
    assert_eq!(track(&key, test).await.status, 200, "test events touch no limit");
    t.happened().await;
    let answers = join_all((0..16).map(|_| track(&key, named(1)))).await;
    let count = |status: u16| answers.iter().filter(|answer| answer.status == status).count();
    assert_eq!(
        (count(200), count(429), count(403)),
        (4, 1, 11),
        "never past the limit, and suspended by the first one too many"
    );
    assert_eq!(t.happened().await, ["AGENT_LIMIT_REACHED", "AGENT_SUSPENDED"]);
    assert_eq!(used().await, 10);
    assert_eq!(me(&t, &token).await.status, 401);
    let sums = "SELECT CAST(SUM(amount) AS BIGINT) FROM machine_spending";
    let (sum,): (i64,) = t.janua.db.one(sums, params![]).await.unwrap();
    let (counted,): (i64,) = t
        .janua
        .db
        .one("SELECT CAST(SUM(value) AS BIGINT) FROM usage_event WHERE environment = 'live'", params![])
        .await
        .unwrap();
    assert_eq!((sum, counted), (10, 10), "what was refused is counted nowhere");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_plan_says_how_many_agents_an_organization_has() {
    let t = start().await;
    let of_free = std::collections::BTreeMap::from([("agents".to_owned(), tenancy::quotas::Limit::hard(1))]);
    let limits = t.janua.own::<tenancy::quotas::Limits>();
    limits.set(std::collections::BTreeMap::from([("free".to_owned(), of_free)]));
    let ada = signed_in(&t, "ada@example.com").await;
    let (id, _) = live_agent(&t, &ada, &EvmWallet::new(1), json!({})).await;
    let second = async || register(&t, &ada, &EvmWallet::new(2).address(), json!({})).await;
    let refused = second().await;
    assert_eq!(refused.refusal(), (402, "quota_exceeded"), "{}", refused.text);
    assert_eq!(
        (&refused.body["meter"], &refused.body["limit"], &refused.body["used"]),
        (&json!("agents"), &json!(1), &json!(1))
    );
    assert!((200..300).contains(&ada.asks(t.ask(Method::DELETE, &format!("/agent/{id}"))).await.status));
    assert_eq!(second().await.status, 200, "room again");
    t.run_jobs().await;
    t.finish().await;
}
