//! PostgreSQL over TLS, and on several hosts.
use super::*;
use db::Durability;

/// The same server under the name its certificate is for.
fn server(query: &str) -> Option<String> {
    let url = std::env::var("TEST_DATABASE_URL").ok().filter(|url| !url.is_empty())?;
    Some(format!("{}?{query}", url.replace("127.0.0.1", "localhost")))
}

async fn connect(url: &str) -> Result<bool, Error> {
    let db = Db::open(url, 2, Durability::Full).await?;
    let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    db.one::<(bool,)>(sql, params![]).await.map(|(ssl,)| ssl)
}

#[tokio::test]
async fn a_server_is_reached_over_tls_when_its_certificate_is_right_and_not_otherwise() {
    let Some(plain) = server("sslmode=disable") else { return };
    let authority = std::env::var("TEST_DATABASE_CA").expect("scripts/test names the authority");
    assert!(!connect(&plain).await.unwrap());
    let trusted = format!("sslmode=verify-full&sslrootcert={authority}");
    assert!(connect(&server(&trusted).unwrap()).await.unwrap(), "encrypted");

    let strange = connect(&server("sslmode=verify-full").unwrap()).await;
    assert!(strange.is_err(), "the machine does not know this authority");
    let other_name = server(&trusted).unwrap().replace("localhost", "127.0.0.1");
    assert!(connect(&other_name).await.is_err(), "the certificate is for another name");
}

#[tokio::test]
async fn of_several_hosts_the_one_that_answers_is_used() {
    let Some(url) = server("sslmode=disable") else { return };
    let (user, rest) = url.split_once('@').unwrap();
    let (_, port_and_database) = rest.split_once(':').unwrap();
    let (port, database) = port_and_database.split_once('/').unwrap();
    let several = format!("{user}@127.0.0.1:1,127.0.0.1:{port}/{database}");
    assert!(connect(&several).await.is_ok(), "the first host is dead");
}
