//! Connections that are not in use.
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::client::Line;

/// Shorter than receivers keep an idle connection, so that none is closed under a request; many close after five.
const KEPT: Duration = Duration::from_secs(4);
/// Many webhooks may lead to one host, and each event then goes there as often.
const MOST_PER_ORIGIN: usize = 128;

/// By the origin they lead to, those used last at the end.
#[derive(Default)]
pub(super) struct Idle(Mutex<Lines>);

#[derive(Default)]
struct Lines {
    by_origin: HashMap<String, Vec<(Instant, Line)>>,
    /// Whether somebody closes what was kept long enough.
    is_swept: bool,
}

impl Idle {
    /// The one used last. The other side may have closed it in this moment.
    pub fn take(&self, origin: &str) -> Option<Line> {
        loop {
            let (since, line) = self.lock().by_origin.get_mut(origin)?.pop()?;
            if since.elapsed() < KEPT {
                return Some(line);
            }
            line.leave();
        }
    }

    pub fn keep(self: &Arc<Self>, origin: &str, line: Line) {
        let mut lines = self.lock();
        let kept = match lines.by_origin.get_mut(origin) {
            Some(kept) => kept,
            None => lines.by_origin.entry(origin.to_owned()).or_default(),
        };
        if kept.len() == MOST_PER_ORIGIN {
            return line.leave();
        }
        kept.push((Instant::now(), line));
        if !lines.is_swept {
            lines.is_swept = true;
            tokio::spawn(self.clone().sweep());
        }
    }

    /// Goes on for as long as there are any.
    async fn sweep(self: Arc<Self>) {
        loop {
            sleep(KEPT).await;
            let mut over = vec![];
            let is_last = {
                let mut lines = self.lock();
                for kept in lines.by_origin.values_mut() {
                    let old = kept.iter().take_while(|(since, _)| since.elapsed() >= KEPT).count();
                    over.extend(kept.drain(..old));
                }
                lines.by_origin.retain(|_, kept| !kept.is_empty());
                lines.is_swept = !lines.by_origin.is_empty();
                !lines.is_swept
            };
            for (_, line) in over {
                line.leave();
            }
            if is_last {
                return;
            }
        }
    }

    /// Nothing can fail while it is held.
    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
