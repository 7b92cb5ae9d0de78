//! Resident memory with ten thousand connections open, each of which has asked once and waits; beside it the bare
//! server's.
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    figure::{Figure, Unit},
    process::{self, Core, Server},
    rounds::{self, Rounds, Sides},
    servers::{self, JanuaBinary},
};

/// A build that is not optimised is here to be tried, not measured.
pub const OPEN: u64 = if cfg!(debug_assertions) { 500 } else { 10_000 };
/// What a process has open besides.
const BESIDES: u64 = 200;

pub fn measure(rounds: &Rounds, janua: &JanuaBinary) -> Result<Vec<Figure>> {
    let allowed = process::allow_files(OPEN + BESIDES);
    ensure!(allowed >= OPEN + BESIDES, "only {allowed} files may be open at once: raise `ulimit -n`");
    let folder = rounds.folder()?;
    let health = janua.serve(&folder, Core::Any)?.health.clone();
    let samples = rounds::alternate(
        "open",
        1,
        || crowded(&servers::bare(&health, &folder, Core::Any)?),
        || crowded(&janua.serve(&folder, Core::Any)?),
    )?;
    let each = |side: &Vec<Crowd>| side.iter().map(Crowd::kilobytes_each).collect();
    let whole = samples.only(|crowd| crowd.full_mb);
    let each = Sides { limit: each(&samples.limit), ours: each(&samples.ours) };
    let what: &'static str = format!("resident with {OPEN} connections open; bare axum").leak();
    Ok(vec![
        Figure { scenario: "open", what, unit: Unit::Megabytes, samples: whole, goal: None },
        Figure { scenario: "open", what: "of that, a connection", unit: Unit::Kilobytes, samples: each, goal: None },
    ])
}

struct Crowd {
    empty_mb: f64,
    full_mb: f64,
}

impl Crowd {
    fn kilobytes_each(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "ten thousand")]
        let open = OPEN as f64;
        (self.full_mb - self.empty_mb) * 1000.0 / open
    }
}

fn crowded(server: &Server) -> Result<Crowd> {
    let empty_mb = server.resident_mb()?;
    let connect = |number| {
        let mut stream = TcpStream::connect(server.address).with_context(|| format!("connection {number}"))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.write_all(b"GET /health HTTP/1.1\r\nhost: bench\r\n\r\n")?;
        let mut answer = [0; 2048];
        // Short enough to come in one piece.
        let read = stream.read(&mut answer)?;
        ensure!(answer[..read].starts_with(b"HTTP/1.1 200 "), "connection {number} was refused");
        Ok(stream)
    };
    let open: Vec<TcpStream> = (0..OPEN).map(connect).collect::<Result<_>>()?;
    let full_mb = server.resident_mb()?;
    drop(open);
    Ok(Crowd { empty_mb, full_mb })
}
