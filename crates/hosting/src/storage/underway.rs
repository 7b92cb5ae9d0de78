//! What this node is doing for uploads: bodies that are coming in, and uploads that are being completed.
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use kernel::{
    Janua,
    fault::{Code, Fault, INTERNAL, NOT_FOUND, Result},
    telemetry::{self, ABOUT},
};
use tenancy::events::By;
use tokio::{
    sync::{Semaphore, watch},
    time,
};

use super::{
    finalize,
    model::{ObjectId, StorageObject},
};

/// Bodies of one upload that may come in at once. Each lies on the disk until it is refused or replaced, so there
/// must be few; the second is for a client whose connection broke, and that tries again before the first is given up.
const AT_ONCE: usize = 2;
const AGAIN: Duration = Duration::from_secs(5);
/// Uploads that are completed at once. No request bounds them, since the work outlives the one that began it.
const COMPLETED_AT_ONCE: usize = 64;

pub const UPLOAD_UNDERWAY: Code = Code::new(
    409,
    "upload_underway",
    "The file is being uploaded by other requests. Wait until they end, or begin a new upload.",
);
pub const FINALIZE_UNDERWAY: Code = Code::new(
    503,
    "finalize_underway",
    "The upload is still being checked and copied, and that goes on. Send the same request again.",
);

/// How many bodies are coming in for each upload.
#[derive(Default)]
pub struct Bodies(Mutex<HashMap<ObjectId, usize>>);

/// One of the bodies of an upload.
pub struct BodyPlace {
    janua: Janua,
    object: ObjectId,
}

impl BodyPlace {
    pub fn take(janua: &Janua, object: ObjectId) -> Result<Self> {
        let mut bodies = janua.own::<Bodies>().0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = bodies.entry(object).or_default();
        if *count >= AT_ONCE {
            return Err(Fault::from(UPLOAD_UNDERWAY).retry_after(AGAIN));
        }
        *count += 1;
        drop(bodies);
        Ok(Self { janua: janua.clone(), object })
    }
}

impl Drop for BodyPlace {
    fn drop(&mut self) {
        let mut bodies = self.janua.own::<Bodies>().0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = bodies.get_mut(&self.object) {
            *count -= 1;
            if *count == 0 {
                bodies.remove(&self.object);
            }
        }
    }
}

/// The uploads that are being completed. Copying and reading a large file may take longer than a request, so the work
/// does not end with the request that began it, and the next request waits for the same work.
pub struct Completions {
    under_way: Mutex<HashMap<ObjectId, watch::Receiver<()>>>,
    pub turns: Semaphore,
}

impl Default for Completions {
    fn default() -> Self {
        Self { under_way: Mutex::default(), turns: Semaphore::new(COMPLETED_AT_ONCE) }
    }
}

/// The work on one upload. Requests that wait for it see its end.
struct Completion {
    janua: Janua,
    object: ObjectId,
    _ended: watch::Sender<()>,
}

impl Completion {
    /// Begins the work, or answers how to wait for what another request began.
    fn begin(janua: &Janua, object: ObjectId) -> Result<Self, watch::Receiver<()>> {
        let mut completions = janua.own::<Completions>().under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ended) = completions.get(&object) {
            return Err(ended.clone());
        }
        let (sender, receiver) = watch::channel(());
        completions.insert(object, receiver);
        drop(completions);
        Ok(Self { janua: janua.clone(), object, _ended: sender })
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        let completions = self.janua.own::<Completions>();
        completions.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.object);
    }
}

/// Makes an object ready. The work goes on when the caller stops waiting.
pub async fn complete(
    janua: &Janua,
    mut object: StorageObject,
    claimed: Option<&str>,
    by: &By,
) -> Result<StorageObject> {
    loop {
        match Completion::begin(janua, object.id) {
            Ok(completion) => {
                let (janua, claimed, by) = (janua.clone(), claimed.map(str::to_owned), by.clone());
                let work = async move {
                    let turn = janua.own::<Completions>().turns.acquire().await;
                    let _turn = turn.map_err(|closed| INTERNAL.caused_by(closed))?;
                    let done = finalize::finish(&janua, object, claimed.as_deref(), &by).await;
                    drop(completion);
                    done
                };
                let task = match telemetry::about() {
                    Some(about) => tokio::spawn(ABOUT.scope(about, work)),
                    None => tokio::spawn(work),
                };
                return task.await.map_err(|error| INTERNAL.caused_by(error))?;
            }
            Err(mut ended) => {
                // Nothing is ever sent; the channel closes at the end.
                let _closed = ended.changed().await;
                object = StorageObject::find(&janua.db, object.id).await?.ok_or(NOT_FOUND)?;
                if object.is_ready() {
                    return finalize::must_have(object, claimed);
                }
            }
        }
    }
}

/// Like [`complete`], and answers in time when the work takes longer than a request may.
pub async fn complete_in_time(
    janua: &Janua,
    object: StorageObject,
    claimed: Option<&str>,
    by: &By,
) -> Result<StorageObject> {
    let patience = janua.config.request_timeout * 3 / 4;
    let done = time::timeout(patience, complete(janua, object, claimed, by)).await;
    done.unwrap_or_else(|_| Err(Fault::from(FINALIZE_UNDERWAY).retry_after(AGAIN)))
}
