//! A small file of a deployed site, against a bare handler that answers the same bytes.
use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};

use crate::{
    client,
    figure::{Figure, Goal},
    ground::Ground,
    identity::{both_ways, side},
    load::{self, Ask},
    process::{self, Core},
    rounds::{self, Rounds},
    servers::{self, JanuaBinary},
};

const SERVER: Core = Core::Only(0);
const GENERATOR: Core = Core::Only(1);
const SMALL: usize = 1024;

pub fn measure(rounds: &Rounds, janua: &JanuaBinary) -> Result<Vec<Figure>> {
    let folder = rounds.folder()?;
    let edge = process::free_address()?;
    let listen = edge.to_string();
    let settings = [("JANUA_RATE_LIMITS", "off"), ("JANUA_EDGE_LISTEN", listen.as_str())];
    let ground = Ground::lay(janua, &folder, SERVER, &settings)?;
    let slug =
        client::text(&ground.asks("GET", &format!("/apps/{}", ground.app), &serde_json::Value::Null)?, "slug")?;
    deploy(&ground, &folder)?;
    let host = format!("{slug}.localhost");
    let get = |connection: &str| {
        format!("GET /small.txt HTTP/1.1\r\nhost: {host}\r\nconnection: {connection}\r\n\r\n").into_bytes()
    };
    let answer = client::send(edge, &get("close"))?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let limit = servers::bare(&answer.replace("\r\nconnection: close", ""), &folder, SERVER)?;
    let file = Ask::again(get("keep-alive"));
    let pid = ground.server.pid();
    let bare = || side(limit.pid(), |slice| load::against(limit.address, slice, GENERATOR));
    let ours = || side(pid, |slice| load::with(edge, slice, GENERATOR, &file));
    let sides = rounds::interleave("edge", rounds.turn, bare, ours)?;
    Ok(both_ways("edge", "a file of 1 KiB by processor time; bare axum, same bytes", &sides, Some(Goal::Ratio(0.8))))
}

/// A site with one small file, packed by the shell's own tools.
fn deploy(ground: &Ground, folder: &Path) -> Result<()> {
    let site = folder.join("site");
    fs::create_dir_all(&site)?;
    fs::write(site.join("small.txt"), "x".repeat(SMALL))?;
    let packed = Command::new("tar").args(["-czf", "-", "-C"]).arg(&site).arg(".").output().context("tar runs")?;
    ensure!(packed.status.success(), "tar failed");
    let head = format!(
        "POST /apps/{}/deploy HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {}\r\nconnection: close\r\n\
         content-type: application/gzip\r\ncontent-length: {}\r\n\r\n",
        ground.app,
        ground.secret,
        packed.stdout.len()
    );
    let answer = client::send(ground.address(), &[head.as_bytes(), &packed.stdout].concat())?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(())
}
