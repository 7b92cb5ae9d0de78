//! The writer's end of a transaction: receives the next step from a caller on another thread, or runs a carried
//! transaction until its next step.
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc::{Receiver, RecvTimeoutError},
    task::{Context, Waker},
    thread,
    time::Duration,
};

use futures_util::future::BoxFuture;

use super::Step;

/// How often the writer yields to a caller on another thread before it goes to sleep.
const TIMES_TO_MAKE_WAY: usize = 8;

pub(super) struct Conversation {
    steps: Receiver<Step>,
    carried: Option<Carried>,
}

/// The future of a carried transaction, which runs on the writer's thread.
struct Carried(BoxFuture<'static, ()>);

impl Conversation {
    pub(super) fn with(steps: Receiver<Step>) -> Self {
        Self { steps, carried: None }
    }

    pub(super) fn carried(steps: Receiver<Step>, caller: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { steps, carried: Some(Carried(Box::pin(caller))) }
    }

    pub(super) fn is_carried(&self) -> bool {
        self.carried.is_some()
    }

    /// The next step; an error when there is none any more, or it does not come in time.
    pub(super) fn next(&mut self, patience: Duration) -> Result<Step, RecvTimeoutError> {
        match &mut self.carried {
            Some(carried) if !patience.is_zero() => carried.next(&self.steps),
            Some(_) => Err(RecvTimeoutError::Timeout),
            None => self.awaited(patience),
        }
    }

    /// Most callers send the next step at once: yielding takes less time than going to sleep and being woken.
    fn awaited(&self, patience: Duration) -> Result<Step, RecvTimeoutError> {
        for _ in 0..TIMES_TO_MAKE_WAY {
            if let Ok(step) = self.steps.try_recv() {
                return Ok(step);
            }
            thread::yield_now();
        }
        self.steps.recv_timeout(patience)
    }
}

impl Carried {
    /// Polls the future until it sends a step. The step is answered before the next poll, so the future needs no waker. A
    /// panic fails this transaction and no other.
    fn next(&mut self, steps: &Receiver<Step>) -> Result<Step, RecvTimeoutError> {
        let run = || self.0.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let is_waiting = catch_unwind(AssertUnwindSafe(run)).is_ok_and(|poll| poll.is_pending());
        let step = steps.try_recv();
        if step.is_err() && is_waiting {
            tracing::error!("a transaction that runs on the writer's thread waited for something that is not SQL");
        }
        step.map_err(|_| RecvTimeoutError::Disconnected)
    }
}
