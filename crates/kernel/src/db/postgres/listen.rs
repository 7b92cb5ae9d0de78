//! What other nodes say, heard through PostgreSQL.
use std::{
    convert::Infallible,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use tokio::time::{sleep, timeout};
use tokio_postgres::AsyncMessage;

use super::{
    super::{Error, Notice, Result, notices::Notices},
    CHANNEL, PATIENCE, Postgres, no_answer,
};

/// A line that says nothing for so long is dead, and what was said meanwhile was missed: the two make less than a second.
const BEAT: Duration = Duration::from_millis(250);
const DEAF: Duration = Duration::from_millis(700);

/// Hears what other nodes say, for as long as the process lives. Whatever was missed is made good by starting over, and
/// while nothing can be heard nothing is remembered for longer than a moment.
pub(super) async fn forever(postgres: Postgres, notices: Notices) {
    let mut pause = BEAT;
    loop {
        let hears = AtomicBool::new(false);
        let hearing = async {
            let Err(error) = hear(&postgres, &notices, &hears).await;
            pause = if hears.swap(false, Relaxed) { BEAT } else { PATIENCE.min(pause * 2) };
            postgres.suspect();
            tracing::warn!(%error, "cannot listen for notices from other nodes; trying again");
            sleep(pause).await;
        };
        let doubting = async {
            loop {
                if !hears.load(Relaxed) {
                    notices.doubt();
                }
                sleep(BEAT).await;
            }
        };
        tokio::select! { () = hearing => {}, () = doubting => {} }
    }
}

async fn hear(postgres: &Postgres, notices: &Notices, hears: &AtomicBool) -> Result<Infallible> {
    let connecting = timeout(PATIENCE, postgres.unlimited.connect(postgres.tls.clone()));
    let (client, mut connection) = connecting.await.map_err(|_| no_answer())??;
    let mut messages = stream::poll_fn(move |context| connection.poll_message(context));
    let listening = async {
        let listen = format!("LISTEN {CHANNEL}");
        timeout(PATIENCE, client.batch_execute(&listen)).await.map_err(|_| no_answer())??;
        notices.tell(&Notice::StartOver);
        hears.store(true, Relaxed);
        // A line that is dead without saying so would be listened to for minutes.
        loop {
            sleep(BEAT).await;
            timeout(DEAF, client.batch_execute("")).await.map_err(|_| no_answer())??;
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
    tokio::select! { outcome = listening => outcome, outcome = hearing => outcome }
}
