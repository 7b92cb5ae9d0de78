//! PostgreSQL through tokio-postgres: a pool of connections, each with its prepared statements.

use std::{
    borrow::Cow,
    error::Error as StdError,
    mem,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    task::Poll,
    time::Duration,
};

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime, Timeouts};
use futures_util::{future::BoxFuture, poll};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};
use tokio_postgres::{
    Client, Config, Statement,
    config::{Host, SslMode},
    types::{IsNull, ToSql, Type, private::BytesMut},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    Done, Error, Load, Notice, Result, Row, SILENCE, STATEMENT_TIMEOUT, Text, Value, migrate,
    notices::{News, Notices},
};

/// How long a request waits for a connection, new or from the pool, before it fails.
const PATIENCE: Duration = Duration::from_secs(2);
const CHANNEL: &str = "janua";
/// The server cuts off long statements by itself; without an answer after this time the connection is dead.
const ANSWER: Duration = STATEMENT_TIMEOUT.saturating_add(Duration::from_millis(500));
/// PostgreSQL rejects longer payloads of `pg_notify`.
const NOTICE_LIMIT: usize = 7_999;
const LEAVE_NOTICE: &str = "INSERT INTO notice (body) VALUES ($1)";
/// How many statements are sent before their answers are waited for.
const MOST_AT_ONCE: usize = 128;

/// The server's clock in milliseconds since 1970.
macro_rules! clock_ms {
    () => {
        "CAST(FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) * 1000) AS BIGINT)"
    };
}

/// After the macro it uses.
mod listen;
mod time;

pub use time::ServerTime;

#[derive(Clone)]
pub(super) struct Postgres {
    pool: Pool,
    /// The settings of the operator, without the time limits of requests.
    unlimited: Config,
    tls: MakeRustlsConnect,
    notifier: Arc<Notify>,
    time: Arc<ServerTime>,
    /// How often a caller had to wait for a connection.
    waits: Arc<AtomicI64>,
}

impl Postgres {
    pub(super) async fn connect(url: &str, connections: usize, notices: Notices) -> Result<Self> {
        let (unlimited, tls) = parse(url)?;
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let pool = Pool::builder(Manager::from_config(limited(&unlimited), tls.clone(), recycling))
            .max_size(connections)
            .runtime(Runtime::Tokio1)
            .timeouts(Timeouts { wait: Some(PATIENCE), create: Some(PATIENCE), recycle: Some(PATIENCE) })
            .build()
            .map_err(|e| Error::Driver(e.to_string()))?;
        // Fails at the start when the address, the password or the certificate is wrong.
        let connection = connection(&pool).await?;
        let asked = Instant::now();
        let row = timeout(ANSWER, connection.query_one(concat!("SELECT ", clock_ms!()), &[]));
        let now: i64 = row.await.map_err(|_| no_answer())??.try_get(0)?;
        let time = Arc::new(ServerTime::new(asked, Instant::now(), now));
        drop(connection);
        let postgres = Self { pool, unlimited, tls, notifier: Arc::default(), time, waits: Arc::default() };
        tokio::spawn(listen::forever(postgres.clone(), notices));
        Ok(postgres)
    }

    pub(super) async fn run(&self, sql: Text, params: Vec<Value>) -> Result<Done> {
        match self.run_once(sql.clone(), &params).await {
            Err(error) if is_outdated(&error) => {
                self.pool.manager().statement_caches.clear();
                self.run_once(sql, &params).await
            }
            outcome => outcome,
        }
    }

    async fn run_once(&self, sql: Text, params: &[Value]) -> Result<Done> {
        let mut lent = Lent(Some(self.connection().await?));
        let Some(connection) = &lent.0 else { return Err(Error::Aborted) };
        let outcome = timeout(ANSWER, run(connection, &sql, params)).await;
        let connection = lent.0.take();
        outcome.unwrap_or_else(|_| {
            drop(connection.map(Object::take));
            self.suspect();
            Err(no_answer())
        })
    }

    /// Drops all idle connections after one was found dead, because they may be dead too. New ones are made when needed.
    fn suspect(&self) {
        self.pool.retain(|_, _| false);
    }

    pub(super) async fn begin(&self) -> Result<PgTx> {
        // BEGIN goes along with the first statement.
        Ok(PgTx {
            connection: Some(self.connection().await?),
            progress: Progress::Untouched,
            before: vec![],
            notifier: self.notifier.clone(),
        })
    }

    /// A connection outside the pool, without the time limits of requests.
    pub(super) async fn dedicated(&self) -> Result<Client> {
        let (client, connection) = self.unlimited.connect(self.tls.clone()).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    pub(super) fn time(&self) -> Arc<ServerTime> {
        self.time.clone()
    }

    pub(super) fn load(&self) -> Load {
        let status = self.pool.status();
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        Load {
            most: count(status.max_size),
            open: count(status.size),
            in_use: count(status.size.saturating_sub(status.available)),
            waiting: count(status.waiting),
            writes_waiting: None,
            waits: Some(self.waits.load(Relaxed)),
        }
    }

    async fn connection(&self) -> Result<Object> {
        let mut connection = pin!(connection(&self.pool));
        match poll!(&mut connection) {
            Poll::Ready(connection) => connection,
            Poll::Pending => {
                self.waits.fetch_add(1, Relaxed);
                connection.await
            }
        }
    }
}

async fn connection(pool: &Pool) -> Result<Object> {
    pool.get().await.map_err(|error| match error {
        PoolError::Backend(error) => Error::Unavailable(describe(&error)),
        error => Error::Unavailable(error.to_string()),
    })
}

/// A connection with a statement under way. When its caller goes away before the answer, the connection is checked before
/// it returns to the pool, so that no other statement waits on a dead connection.
struct Lent(Option<Object>);

impl Drop for Lent {
    fn drop(&mut self) {
        if let (Some(connection), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(give_back(connection, ""));
        }
    }
}

/// Returns a connection to the pool if it answers, and drops it otherwise.
async fn give_back(connection: Object, last_word: &'static str) {
    if !matches!(timeout(ANSWER, connection.batch_execute(last_word)).await, Ok(Ok(()))) {
        drop(Object::take(connection));
    }
}

pub(super) struct PgTx {
    /// Taken when the transaction ends.
    connection: Option<Object>,
    progress: Progress,
    /// Statements that travel with the next one that is waited for.
    before: Vec<Prepared>,
    /// Notified when there are notices to send.
    notifier: Arc<Notify>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Nothing was sent yet, not even BEGIN, so an idle transaction holds no lock.
    Untouched,
    Open,
    /// A statement failed. PostgreSQL would answer COMMIT with a silent rollback, so the failure is kept here.
    Failed,
}

struct Prepared {
    statement: Statement,
    params: Vec<Value>,
}

/// The reasons why a conversation with the server ends.
enum Broken {
    Refused(Error),
    /// The server does not answer.
    Silent,
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl PgTx {
    pub(super) async fn run(&mut self, sql: Text, params: Vec<Value>) -> Result<Done> {
        self.add(&sql, params).await?;
        Ok(last_of(self.converse(false).await?))
    }

    /// Runs one statement with each of these values: one round trip for each [`MOST_AT_ONCE`] of them.
    pub(super) async fn run_each(&mut self, sql: &Text, each: Vec<Vec<Value>>) -> Result<Vec<Done>> {
        let (mut done, mut rest) = (Vec::with_capacity(each.len()), each.into_iter().peekable());
        while rest.peek().is_some() {
            let sent = self.before.len();
            for params in rest.by_ref().take(MOST_AT_ONCE.saturating_sub(sent).max(1)) {
                self.add(sql, params).await?;
            }
            done.extend(self.converse(false).await?.into_iter().skip(sent));
        }
        Ok(done)
    }

    /// Costs no round trip: the statement travels with the next one that is waited for, or with the commit.
    pub(super) async fn send(&mut self, sql: Text, params: Vec<Value>) -> Result<()> {
        self.add(&sql, params).await?;
        if self.before.len() < MOST_AT_ONCE { Ok(()) } else { self.converse(false).await.map(drop) }
    }

    /// Whether statements wait to travel with the next one.
    pub(super) fn has_sent(&self) -> bool {
        !self.before.is_empty()
    }

    async fn add(&mut self, sql: &Text, params: Vec<Value>) -> Result<()> {
        let statement = self.prepare(sql).await?;
        self.before.push(Prepared { statement, params });
        Ok(())
    }

    /// A round trip for the first use of a statement on a connection, and none afterwards.
    async fn prepare(&mut self, sql: &Text) -> Result<Statement> {
        let failed = self.progress == Progress::Failed;
        let connection = self.connection.as_ref().filter(|_| !failed).ok_or(Error::Aborted)?;
        let prepared = match timeout(ANSWER, prepare(connection, sql)).await {
            Ok(prepared) => prepared.map_err(Broken::Refused),
            Err(_) => Err(Broken::Silent),
        };
        self.note(prepared)
    }

    /// Sends BEGIN if it was not sent yet, everything that waits to be sent, and COMMIT if this is the end, all at once;
    /// answers what each statement did. The server works through them in order, and after an error does nothing more.
    async fn converse(&mut self, commits: bool) -> Result<Vec<Done>> {
        let failed = self.progress == Progress::Failed;
        let connection = self.connection.as_ref().filter(|_| !failed).ok_or(Error::Aborted)?;
        let begins = self.progress == Progress::Untouched;
        self.progress = Progress::Open;
        let outcome = converse(connection, begins, mem::take(&mut self.before), commits).await;
        self.note(outcome)
    }

    fn note<T>(&mut self, outcome: Result<T, Broken>) -> Result<T> {
        outcome.map_err(|broken| {
            self.progress = Progress::Failed;
            match broken {
                Broken::Refused(error) => {
                    // The transaction runs again, and prepares everything anew.
                    if is_outdated(&error)
                        && let Some(pool) = self.connection.as_ref().and_then(Object::pool)
                    {
                        pool.manager().statement_caches.clear();
                    }
                    error
                }
                Broken::Silent => {
                    // Out of the pool: an answer to what was asked may still come.
                    drop(self.connection.take().map(Object::take));
                    no_answer()
                }
            }
        })
    }

    /// The notice as it will be sent to other nodes after the commit. Its statement is prepared now, so that nothing
    /// stands between a caller who may go away and the commit.
    pub(super) async fn prepare_to_notify(&mut self, notice: &Notice) -> Result<String> {
        let Notice::News { topic, body } = notice else { return Ok(String::new()) };
        let packed = Notices::pack(topic, body);
        if packed.len() > NOTICE_LIMIT {
            return Err(Error::Driver(format!("a notice on {topic} is too long: {} bytes", packed.len())));
        }
        self.prepare(&LEAVE_NOTICE.into()).await?;
        Ok(packed)
    }

    /// Notices for other nodes are rows that are written with the change: `pg_notify` would hold a lock of the whole
    /// server until the commit is on the disk, and every other commit with a notice would wait for it.
    pub(super) async fn commit(mut self, news: &News) -> Result<()> {
        if self.progress == Progress::Failed {
            return Err(Error::Aborted);
        }
        let mut has_notices = false;
        for body in news.rows_for_others() {
            self.add(&LEAVE_NOTICE.into(), vec![body.into()]).await?;
            has_notices = true;
        }
        if self.progress == Progress::Open || !self.before.is_empty() {
            self.converse(true).await?;
        }
        self.connection = None;
        if has_notices {
            self.notifier.notify_one();
        }
        Ok(())
    }
}

impl Drop for PgTx {
    fn drop(&mut self) {
        if self.progress == Progress::Untouched {
            return;
        }
        // Outside the runtime the pool is going away too, and the server rolls back by itself.
        if let (Some(connection), Ok(runtime)) = (self.connection.take(), tokio::runtime::Handle::try_current()) {
            // Nobody may find this connection in the pool with a transaction still open.
            runtime.spawn(give_back(connection, "ROLLBACK"));
        }
    }
}

type Answer<'a> = BoxFuture<'a, Result<Option<Done>>>;

async fn converse(
    connection: &Object,
    begins: bool,
    statements: Vec<Prepared>,
    commits: bool,
) -> Result<Vec<Done>, Broken> {
    let control = |sql: &'static str| -> Answer<'_> {
        Box::pin(async move { connection.batch_execute(sql).await.map(|()| None).map_err(Error::from) })
    };
    let work = statements.into_iter().map(|Prepared { statement, params }| -> Answer<'_> {
        Box::pin(async move { execute(connection, &statement, &params).await.map(Some) })
    });
    let begin = begins.then(|| control("BEGIN"));
    let commit = commits.then(|| control("COMMIT"));
    // A request is on its way as soon as its future was polled for the first time.
    let mut asked = Vec::new();
    for mut answer in begin.into_iter().chain(work).chain(commit) {
        let at_once = poll!(&mut answer);
        asked.push((answer, at_once));
    }
    let (mut done, mut refused) = (vec![], None);
    for (answer, at_once) in asked {
        let outcome = match at_once {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => timeout(ANSWER, answer).await.map_err(|_| Broken::Silent)?,
        };
        match outcome {
            Ok(of_statement) => done.extend(of_statement),
            // What follows an error only repeats that there was one.
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    refused.map_or(Ok(done), |error| Err(error.into()))
}

fn last_of(mut done: Vec<Done>) -> Done {
    done.pop().unwrap_or(Done { rows: vec![], changed: 0 })
}

fn no_answer() -> Error {
    Error::Unavailable("the server does not answer".into())
}

/// Splits off what the driver does not know: `sslmode=verify-full` and `sslrootcert`.
///
/// The certificate is always checked when TLS is used: encryption without it would not tell who answers.
fn parse(url: &str) -> Result<(Config, MakeRustlsConnect)> {
    let wrong = |what: String| Error::Driver(format!("database_url: {what}"));
    let (address, query) = url.split_once('?').unwrap_or((url, ""));
    let (mut mode, mut root, mut rest) = (None, None, Vec::new());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("sslmode", value)) => mode = Some(value.to_owned()),
            Some(("sslrootcert", value)) => root = Some(value.to_owned()),
            _ => rest.push(pair),
        }
    }
    let mut config: Config =
        format!("{address}?{}", rest.join("&")).parse().map_err(|e: tokio_postgres::Error| wrong(describe(&e)))?;
    let here = config.get_hosts().iter().all(|host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => name == "localhost" || name.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback()),
    });
    // An address given beside the name is where the connection really goes.
    let here = here && config.get_hostaddrs().iter().all(std::net::IpAddr::is_loopback);
    let encrypted = match mode.as_deref() {
        Some("disable") => false,
        Some("require" | "verify-full") => true,
        None | Some("prefer") => !here || root.is_some(),
        Some(other) => return Err(wrong(format!("sslmode={other} is not known; use disable or verify-full"))),
    };
    config.ssl_mode(if encrypted { SslMode::Require } else { SslMode::Disable });
    // Whatever the URL says: `janua move` finds servers by this name, and migrations those of an earlier version.
    if config.get_application_name() != Some(MOVE) {
        config.application_name(format!("{NODE}{}", migrate::newest()));
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(PATIENCE);
    }
    // With several hosts the one that takes writes is ours: after a failover that is another one.
    if config.get_hosts().len() > 1 {
        config.target_session_attrs(tokio_postgres::config::TargetSessionAttrs::ReadWrite);
    }
    config.tcp_user_timeout(STATEMENT_TIMEOUT).keepalives_idle(Duration::from_secs(30));
    let roots = if encrypted { roots(root.as_deref()).map_err(wrong)? } else { RootCertStore::empty() };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| wrong(e.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok((config, MakeRustlsConnect::new(tls)))
}

/// The same with the time limits of requests, before the options that the operator set.
fn limited(config: &Config) -> Config {
    let limits = format!(
        "-c statement_timeout={} -c lock_timeout={} -c idle_in_transaction_session_timeout={}",
        STATEMENT_TIMEOUT.as_millis(),
        STATEMENT_TIMEOUT.as_millis(),
        SILENCE.as_millis()
    );
    let options = config.get_options().map_or(limits.clone(), |given| format!("{limits} {given}"));
    let mut limited = config.clone();
    limited.options(options);
    limited
}

/// The authorities a server certificate may come from: the given file, or those the machine trusts.
fn roots(file: Option<&str>) -> std::result::Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let Some(file) = file else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    };
    let certificates = CertificateDer::pem_file_iter(file).map_err(|e| format!("sslrootcert {file}: {e}"))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|e| format!("sslrootcert {file}: {e}"))?;
        roots.add(certificate).map_err(|e| format!("sslrootcert {file}: {e}"))?;
    }
    if roots.is_empty() { Err(format!("sslrootcert {file} holds no certificate")) } else { Ok(roots) }
}

async fn run(connection: &Object, sql: &Text, params: &[Value]) -> Result<Done> {
    let statement = prepare(connection, sql).await?;
    execute(connection, &statement, params).await
}

async fn prepare(connection: &Object, sql: &Text) -> Result<Statement> {
    Ok(match sql {
        Cow::Borrowed(sql) => connection.prepare_cached(sql).await?,
        Cow::Owned(sql) => connection.prepare(sql).await?,
    })
}

async fn execute(connection: &Client, statement: &Statement, params: &[Value]) -> Result<Done> {
    let bound: Vec<&(dyn ToSql + Sync)> = params.iter().map(|value| value as _).collect();
    if statement.columns().is_empty() {
        return Ok(Done { rows: vec![], changed: connection.execute(statement, &bound).await? });
    }
    let names: Arc<[String]> = statement.columns().iter().map(|column| column.name().to_owned()).collect();
    let found = connection.query(statement, &bound).await?;
    let read = |row: &tokio_postgres::Row| -> Result<Row> {
        let values = (0..row.len()).map(|i| value(row, i)).collect::<Result<_>>()?;
        Ok(Row::new(names.clone(), values))
    };
    let rows = found.iter().map(read).collect::<Result<Vec<_>>>()?;
    Ok(Done { changed: rows.len() as u64, rows })
}

/// The name of servers and commands at the PostgreSQL server, before the number of the newest migration that they know.
/// Those of 0.1 are called `janua`.
pub const NODE: &str = "janua/";

/// The name of `janua move` at the server, which tells it apart from servers.
pub const MOVE: &str = "janua-move";

/// A column of a row, as the type both engines have in common.
pub fn value(row: &tokio_postgres::Row, place: usize) -> Result<Value> {
    let column = &row.columns()[place];
    Ok(match *column.type_() {
        Type::BOOL => row.try_get::<_, Option<bool>>(place)?.into(),
        Type::INT8 => row.try_get::<_, Option<i64>>(place)?.into(),
        Type::INT4 => row.try_get::<_, Option<i32>>(place)?.into(),
        Type::FLOAT8 => row.try_get::<_, Option<f64>>(place)?.into(),
        Type::BYTEA => row.try_get::<_, Option<Vec<u8>>>(place)?.into(),
        Type::TEXT | Type::VARCHAR | Type::NAME | Type::BPCHAR | Type::UNKNOWN => {
            row.try_get::<_, Option<String>>(place)?.into()
        }
        ref other => {
            let name = column.name();
            return Err(Error::Decode(format!("column {name} has type {other}, which SQLite does not know")));
        }
    })
}

impl ToSql for Value {
    fn to_sql(&self, to: &Type, out: &mut BytesMut) -> std::result::Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match (self, to) {
            (Self::Null, _) => Ok(IsNull::Yes),
            (Self::Text(text), &Type::TEXT | &Type::VARCHAR | &Type::NAME | &Type::BPCHAR | &Type::UNKNOWN) => {
                text.to_sql(to, out)
            }
            (Self::Int(number), &Type::INT8) => number.to_sql(to, out),
            (Self::Int(number), &Type::INT4) => i32::try_from(*number)?.to_sql(to, out),
            (Self::Bool(truth), &Type::BOOL) => truth.to_sql(to, out),
            (Self::Real(number), &Type::FLOAT8) => number.to_sql(to, out),
            (Self::Bytes(bytes), &Type::BYTEA) => bytes.to_sql(to, out),
            (value, to) => Err(format!("{value:?} does not fit a column of type {to}").into()),
        }
    }
    fn accepts(_: &Type) -> bool {
        true
    }
    tokio_postgres::types::to_sql_checked!();
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(db) = error.as_db_error() else {
            let lost = error.is_closed() || error.source().is_some_and(<dyn StdError>::is::<std::io::Error>);
            let said = describe(&error);
            return if lost { Self::Unavailable(said) } else { Self::Driver(said) };
        };
        match db.code().code() {
            "23505" => Self::Unique(db.constraint().unwrap_or_default().to_owned()),
            "23503" => Self::ForeignKey,
            "40001" | "40P01" => Self::Conflict(db.message().to_owned()),
            "0A000" => Self::Conflict(OUTDATED.to_owned()),
            "57014" | "55P03" => Self::Timeout,
            "53100" => Self::Full,
            "25006" => Self::ReadOnly(db.message().to_owned()),
            // Ended for being silent inside a transaction.
            "25P03" => Self::Silent,
            code if ["08", "53", "57"].iter().any(|class| code.starts_with(class)) => {
                Self::Unavailable(db.message().to_owned())
            }
            _ => Self::Driver(describe(&error)),
        }
    }
}

/// A node of a later version has changed a table since a statement on it was prepared ("cached plan must not change
/// result type"). Nothing that is written here can be refused for another reason of this kind.
const OUTDATED: &str = "a table was changed under a prepared statement";

fn is_outdated(error: &Error) -> bool {
    matches!(error, Error::Conflict(why) if why == OUTDATED)
}

/// The driver says only "db error"; what happened is in the causes.
fn describe(error: &tokio_postgres::Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        said = format!("{said}: {deeper}");
        cause = deeper.source();
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(url: &str) -> Result<SslMode> {
        parse(url).map(|(config, _)| config.get_ssl_mode())
    }

    #[test]
    fn a_database_elsewhere_is_reached_over_tls_unless_told_otherwise() {
        assert_eq!(mode("postgres://u@127.0.0.1/d").unwrap(), SslMode::Disable);
        assert_eq!(mode("postgres://u@db.example/d").unwrap(), SslMode::Require);
        assert_eq!(mode("postgres://u@localhost,db.example/d").unwrap(), SslMode::Require, "one of two is elsewhere");
        assert_eq!(
            mode("postgres://u@localhost/d?hostaddr=203.0.113.5").unwrap(),
            SslMode::Require,
            "not here at all"
        );
        assert_eq!(mode("postgres:///d?hostaddr=203.0.113.5").unwrap(), SslMode::Require);
        assert_eq!(mode("postgres://u@db.example/d?sslmode=disable").unwrap(), SslMode::Disable);
        assert_eq!(mode("postgres://u@localhost/d?sslmode=verify-full").unwrap(), SslMode::Require);
    }

    #[test]
    fn a_setting_that_cannot_be_kept_is_refused_by_name() {
        let said = mode("postgres://u@h/d?sslmode=verify-ca").unwrap_err().to_string();
        assert!(said.contains("sslmode=verify-ca"), "{said}");
        let said = mode("postgres://u@h/d?sslrootcert=/nowhere.pem").unwrap_err().to_string();
        assert!(said.contains("/nowhere.pem"), "{said}");
    }
}
