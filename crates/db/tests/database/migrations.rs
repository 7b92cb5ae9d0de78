//! How the schema is brought up to date.
use db::migrate::MigrateError;

use super::*;

const FIRST: Migration = Migration { number: 1, name: "first", sql: "CREATE TABLE one (id TEXT PRIMARY KEY);" };
const SECOND: Migration = Migration {
    number: 2,
    name: "second",
    sql: "CREATE TABLE two (id TEXT PRIMARY KEY); INSERT INTO two (id) VALUES ('x');",
};
const BROKEN: Migration =
    Migration { number: 2, name: "broken", sql: "CREATE TABLE half (id TEXT); INSERT INTO nowhere VALUES (1);" };
const EDITED: Migration = Migration { number: 1, name: "first", sql: "CREATE TABLE one (id TEXT);" };

async fn count(db: &Db, sql: &'static str) -> i64 {
    db.one::<(i64,)>(sql, params![]).await.unwrap().0
}

#[tokio::test]
async fn steps_are_applied_once_and_in_order() {
    const BOTH: &[Migration] = &[FIRST, SECOND];
    let test = TestDb::empty().await;
    assert_eq!(test.db.migrate_to(&BOTH[..1], START).await.unwrap(), ["first"]);
    assert_eq!(test.db.migrate_to(BOTH, START).await.unwrap(), ["second"]);
    assert!(test.db.migrate_to(BOTH, START).await.unwrap().is_empty());
    assert_eq!(count(&test.db, "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM two").await, 1);
}

#[tokio::test]
async fn a_failed_step_leaves_nothing_of_itself() {
    let test = TestDb::empty().await;
    let error = test.db.migrate_to(&[FIRST, BROKEN], START).await.unwrap_err();
    assert!(matches!(error, MigrateError::Failed { number: 2, .. }), "{error}");
    assert!(test.db.all::<(String,)>("SELECT id FROM half", params![]).await.is_err());
    assert_eq!(test.db.migrate_to(&[FIRST, SECOND], START).await.unwrap(), ["second"], "mended and tried again");
}

#[tokio::test]
async fn an_older_binary_and_an_edited_step_are_refused() {
    let test = TestDb::empty().await;
    test.db.migrate_to(&[FIRST, SECOND], START).await.unwrap();
    let older = test.db.migrate_to(&[FIRST], START).await.unwrap_err();
    assert!(matches!(older, MigrateError::Newer { found: 2, known: 1 }), "{older}");
    let edited = test.db.migrate_to(&[EDITED, SECOND], START).await.unwrap_err();
    assert!(matches!(edited, MigrateError::Changed { number: 1, .. }), "{edited}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_nodes_that_start_at_once_one_migrates() {
    let test = TestDb::empty().await;
    let mut nodes = Vec::new();
    for _ in 0..8 {
        let db = test.another_node().await;
        nodes.push(tokio::spawn(async move { db.migrate_to(&[FIRST, SECOND], START).await }));
    }
    let mut applied = Vec::new();
    for node in nodes {
        applied.extend(node.await.unwrap().unwrap());
    }
    applied.sort();
    assert_eq!(applied, ["first", "second"]);
}

/// A node of 0.1, as far as the database sees it. Waiting costs ten seconds, so the waits are side by side.
#[tokio::test]
async fn nodes_that_could_not_work_on_what_comes_must_stop_first() {
    const BOTH: &[Migration] = &[FIRST, SECOND];
    if !TestDb::on_postgres() {
        // An embedded database has one server, which holds a lock.
        return;
    }
    let stand_in = async |test: &TestDb, name: &str| {
        let config = test.url.parse::<tokio_postgres::Config>().unwrap().application_name(name).to_owned();
        let (client, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    };
    let refused = async |name: &str| {
        let test = TestDb::empty().await;
        let other = stand_in(&test, name).await;
        assert_eq!(test.db.migrate_to(&BOTH[..1], START).await.unwrap(), ["first"], "nobody knows an empty database");
        let error = test.db.migrate_to(BOTH, START).await.unwrap_err();
        assert!(matches!(error, MigrateError::Beside { connections: 1, .. }), "{error}");
        let tables = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM pg_tables WHERE tablename = 'two'";
        assert_eq!(count(&test.db, tables).await, 0, "nothing was changed");
        drop(other);
        assert_eq!(test.db.migrate_to(BOTH, START).await.unwrap(), ["second"], "it went away");
    };
    let welcome = async |name: &str| {
        let test = TestDb::empty().await;
        let _other = stand_in(&test, name).await;
        test.db.migrate_to(&BOTH[..1], START).await.unwrap();
        assert_eq!(test.db.migrate_to(BOTH, START).await.unwrap(), ["second"], "{name}");
    };
    futures_util::join!(
        refused("janua"),
        refused("janua/20"),
        welcome("janua/62"),
        welcome("janua/1000"),
        welcome("janua-move"),
        welcome("psql")
    );
}

#[tokio::test]
async fn the_products_own_migrations_apply() {
    let test = TestDb::migrated().await;
    assert!(test.db.migrate(0).await.unwrap().is_empty());
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM schema_migration";
    assert_eq!(count(&test.db, sql).await, i64::try_from(db::migrate::ALL.len()).unwrap());
}
