//! A pool of threads with an order of preference: a call goes to the first thread that is free. Each thread has its own
//! cache of pages and prepared statements, so a pool that prefers one thread needs less memory and has a warmer cache
//! than one that takes turns.
use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Mutex, Weak},
};

use crossbeam_channel as queue;

use crate::lock;

pub(super) struct Readers<T>(Arc<Mutex<Shared<T>>>);

struct Shared<T> {
    desks: Vec<queue::Sender<T>>,
    free: BTreeSet<usize>,
    /// Calls that wait because no thread is free.
    waiting: VecDeque<T>,
    working: usize,
}

/// One reader's place among the others.
pub(super) struct Desk<T> {
    /// Weak, so that a reader thread does not keep the pool it belongs to alive.
    shared: Weak<Mutex<Shared<T>>>,
    number: usize,
    calls: queue::Receiver<T>,
}

impl<T> Default for Readers<T> {
    fn default() -> Self {
        let (desks, free, waiting) = (Vec::new(), BTreeSet::new(), VecDeque::new());
        Self(Arc::new(Mutex::new(Shared { desks, free, waiting, working: 0 })))
    }
}

impl<T> Readers<T> {
    /// Adds a thread, preferred less than those before it.
    pub(super) fn join(&self) -> Desk<T> {
        let (desk, calls) = queue::unbounded();
        let mut shared = lock(&self.0);
        let number = shared.desks.len();
        shared.desks.push(desk);
        shared.working += 1;
        Desk { shared: Arc::downgrade(&self.0), number, calls }
    }

    /// The number of threads, of those that are busy, and of calls that wait.
    pub(super) fn load(&self) -> (usize, usize, usize) {
        let shared = lock(&self.0);
        (shared.working, shared.working.saturating_sub(shared.free.len()), shared.waiting.len())
    }

    /// Hands a call to a thread; `false` if all have ended.
    pub(super) fn send(&self, call: T) -> bool {
        let mut shared = lock(&self.0);
        match shared.free.pop_first() {
            Some(number) => shared.desks[number].send(call).is_ok(),
            None if shared.working == 0 => false,
            None => {
                shared.waiting.push_back(call);
                true
            }
        }
    }
}

/// What is to be done next; waits for it, and ends with the readers.
impl<T> Iterator for Desk<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        {
            let shared = self.shared.upgrade()?;
            let mut shared = lock(&shared);
            if let Some(call) = shared.waiting.pop_front() {
                return Some(call);
            }
            shared.free.insert(self.number);
        }
        self.calls.recv().ok()
    }
}

/// Also after a panic: calls are never queued for a thread that has ended.
impl<T> Drop for Desk<T> {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let mut shared = lock(&shared);
        shared.free.remove(&self.number);
        shared.working -= 1;
        if shared.working == 0 {
            shared.waiting.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    /// What a reader is asked: to say who he is, once he may.
    struct Who {
        may: mpsc::Receiver<()>,
        is: mpsc::Sender<usize>,
    }

    impl Readers<Who> {
        fn with(count: usize) -> Self {
            let readers = Self::default();
            for number in 0..count {
                let desk = readers.join();
                thread::spawn(move || {
                    for who in desk {
                        let _ = who.may.recv();
                        let _ = who.is.send(number);
                    }
                });
            }
            readers
        }

        /// How to let him go on, and where he will say who he is.
        fn ask(&self) -> (mpsc::Sender<()>, mpsc::Receiver<usize>) {
            let ((go, may), (is, who)) = (mpsc::channel(), mpsc::channel());
            assert!(self.send(Who { may, is }));
            (go, who)
        }

        fn wait_until_free(&self, count: usize) {
            while lock(&self.0).free.len() < count {
                thread::yield_now();
            }
        }
    }

    #[test]
    fn the_first_does_it_and_the_others_only_while_he_is_busy() {
        let readers = Readers::with(3);
        for _ in 0..20 {
            readers.wait_until_free(3);
            let (go, who) = readers.ask();
            drop(go);
            assert_eq!(who.recv_timeout(LONG), Ok(0));
        }
        readers.wait_until_free(3);
        let busy = [(); 3].map(|()| readers.ask());
        let waiting = readers.ask();
        // The second one is done, and goes on with what waits; nobody else could.
        let [first, second, third] = busy;
        drop(second.0);
        assert_eq!(second.1.recv_timeout(LONG), Ok(1));
        drop(waiting.0);
        assert_eq!(waiting.1.recv_timeout(LONG), Ok(1));
        drop((first.0, third.0));
        assert_eq!((first.1.recv_timeout(LONG), third.1.recv_timeout(LONG)), (Ok(0), Ok(2)));
    }

    #[test]
    fn readers_end_when_nobody_can_ask_them_any_more() {
        let readers = Readers::<u8>::default();
        let desk = readers.join();
        let reader = thread::spawn(move || desk.count());
        assert!(readers.send(7));
        drop(readers);
        assert!(reader.join().unwrap() <= 1);
    }

    #[test]
    fn nobody_waits_for_readers_who_are_gone() {
        let readers = Readers::<mpsc::Sender<()>>::default();
        let (desk, (call, answer)) = (readers.join(), mpsc::channel());
        // He never comes to it.
        assert!(readers.send(call.clone()));
        drop(desk);
        assert!(!readers.send(call));
        assert_eq!(answer.recv_timeout(LONG), Err(mpsc::RecvTimeoutError::Disconnected));
    }
}
