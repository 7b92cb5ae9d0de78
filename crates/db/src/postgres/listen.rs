//! Notices between nodes, through PostgreSQL: sends the notices that transactions left as rows, and receives those of all
//! nodes.
//!
//! One connection and one statement do both. The statement takes rows of `notice` and sends them with `pg_notify`, which
//! takes a lock of the whole server: once for a batch, and never in a transaction that a caller waits for. The same
//! statement deletes the rows it sends, so no notice is lost when a node dies: any node sends what another one left.
use std::{convert::Infallible, time::Duration};

use futures_util::{StreamExt as _, stream};
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::{AsyncMessage, Client, Statement, error::SqlState};

use super::{
    super::{Error, Notice, Result, notices::Notices},
    CHANNEL, PATIENCE, Postgres, no_answer,
};

/// How often a node asks for what was left behind, at the least.
const BEAT: Duration = Duration::from_millis(200);
/// For how long an answer proves that everything was heard. Less than a second with everything that comes on top.
const COUNTS_FOR: Duration = Duration::from_millis(700);
/// What is written meanwhile shares the next batch.
const PAUSE: Duration = Duration::from_millis(20);
const ROWS: i64 = 500;

/// Sends what waits. Rows that another node is sending right now are waited for: once this has answered, everything that
/// was committed before is on its way to this connection or was heard already. It also says whether this connection still
/// listens (it might lead to another one by now), and what time it is.
const SEND: &str = concat!(
    "WITH waiting AS MATERIALIZED (SELECT ctid AS place FROM notice LIMIT $1 FOR UPDATE),
          taken AS (DELETE FROM notice USING waiting WHERE notice.ctid = waiting.place RETURNING notice.body)
     SELECT CAST(COUNT(CAST(pg_notify($2, one) AS TEXT)) AS BIGINT) AS sent,
            EXISTS (SELECT 1 FROM pg_listening_channels() AS channel WHERE channel = $2) AS listens, ",
    clock_ms!(),
    " AS now
     FROM taken CROSS JOIN json_array_elements_text(CAST(taken.body AS JSON)) AS one"
);

/// For as long as the process lives. Missed notices are made good by starting over, and while the connection is away
/// nothing in memory counts.
pub(super) async fn forever(postgres: Postgres, notices: Notices) {
    let mut pause = BEAT;
    loop {
        let mut has_heard = false;
        let Err(error) = hear(&postgres, &notices, &mut has_heard).await;
        pause = if has_heard { BEAT } else { PATIENCE.min(pause * 2) };
        postgres.suspect();
        tracing::warn!(%error, "cannot listen for notices from other nodes; trying again");
        sleep(pause).await;
    }
}

async fn hear(postgres: &Postgres, notices: &Notices, has_heard: &mut bool) -> Result<Infallible> {
    let connecting = timeout(PATIENCE, postgres.unlimited.connect(postgres.tls.clone()));
    let (client, mut connection) = connecting.await.map_err(|_| no_answer())??;
    let mut messages = stream::poll_fn(move |context| connection.poll_message(context));
    let sending = async {
        let listen = format!("LISTEN {CHANNEL}");
        timeout(PATIENCE, client.batch_execute(&listen)).await.map_err(|_| no_answer())??;
        let send = prepared(&client).await?;
        loop {
            let asked = Instant::now();
            let answer = timeout(COUNTS_FOR, client.query_one(&send, &[&ROWS, &CHANNEL]));
            let answer = answer.await.map_err(|_| no_answer())??;
            let (sent, listens, now): (i64, bool, i64) =
                (answer.try_get("sent")?, answer.try_get("listens")?, answer.try_get("now")?);
            if !listens {
                return Err(Error::Unavailable("the connection does not listen any more".into()));
            }
            postgres.time.adjust(asked, Instant::now(), now);
            if !*has_heard {
                notices.tell(&Notice::StartOver);
                *has_heard = true;
            }
            notices.heard_all_until(asked, COUNTS_FOR);
            if sent < ROWS {
                sleep(PAUSE).await;
                // Nobody need be woken: then it is time to ask again.
                let _ = timeout(BEAT.saturating_sub(PAUSE), postgres.notifier.notified()).await;
            }
        }
    };
    let hearing = async {
        while let Some(message) = messages.next().await {
            if let AsyncMessage::Notification(told) = message? {
                notices.heard(told.payload());
            }
        }
        Err(Error::Unavailable("the server has hung up".into()))
    };
    tokio::select! { outcome = sending => outcome, outcome = hearing => outcome }
}

/// Waits for the table, which the first migration creates after the database is opened.
async fn prepared(client: &Client) -> Result<Statement> {
    loop {
        let prepared = timeout(PATIENCE, client.prepare(SEND)).await.map_err(|_| no_answer())?;
        match prepared {
            Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => sleep(BEAT).await,
            prepared => return Ok(prepared?),
        }
    }
}
