//! Work that takes a processor and memory for a while: drawing templates, reading HTML. It is done beside the threads that
//! answer, a few pieces at a time.
use std::sync::Arc;

use kernel::{
    Janua,
    fault::{INTERNAL, Result},
};
use tokio::{sync::Semaphore, task::spawn_blocking};

/// How many pieces of work a node does at once.
const PLACES: usize = 2;

pub struct Workers(Arc<Semaphore>);

impl Default for Workers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(PLACES)))
    }
}

pub async fn run<T: Send + 'static>(janua: &Janua, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let place =
        janua.own::<Workers>().0.clone().acquire_owned().await.map_err(|closed| INTERNAL.caused_by(closed))?;
    let done = spawn_blocking(move || {
        let done = work();
        // Held until here even if the caller has gone: so long the memory is taken.
        drop(place);
        done
    });
    done.await.map_err(|panic| INTERNAL.caused_by(panic))
}
