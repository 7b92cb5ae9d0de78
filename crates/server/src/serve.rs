//! Serving until told to stop, and stopping without losing what is under way.
use std::{hint::black_box, process::ExitCode, thread, time::Duration};

use anyhow::{Context as _, Result, anyhow};
use hosting::{
    TlsSource, certificates,
    edge::{self, Bound, EdgeUrl},
};
use kernel::{
    Janua,
    clock::Clock,
    config::Config,
    http::{Intercept, Listening, serve_with},
    jobs::Worker,
};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::{oneshot, watch},
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};

use crate::{
    Out, say,
    start::{self, Node, VERSION},
};

/// Freed memory lies ready for a second before it can go back.
const TIDY_EVERY: Duration = Duration::from_secs(1);

/// What a development server has besides: a clock of its own, and somebody who waits for its start and ends it.
pub struct Beside {
    pub clock: Clock,
    pub started: oneshot::Sender<Started>,
    pub stopped: oneshot::Receiver<()>,
}

/// Where the server is, and what it works with.
pub struct Started {
    pub url: String,
    pub janua: Janua,
}

pub async fn run(config: Config) -> Result<ExitCode> {
    run_beside(config, None).await
}

pub async fn run_beside(config: Config, beside: Option<Beside>) -> Result<ExitCode> {
    // Bound first: a port that is taken is said before anything is touched.
    let listener = TcpListener::bind(config.listen)
        .await
        .with_context(|| format!("cannot listen on {} (choose another with --listen)", config.listen))?;
    let address = listener.local_addr()?;
    let mut config = config;
    config.listen = address;
    let edge = edge::bind(&config).await.map_err(|wrong| anyhow!(wrong))?;
    if let Bound::Listening(listener) = &edge {
        let address = listener.local_addr()?;
        config = config.with(|settings: &mut edge::Settings| settings.edge_listen = Some(address));
    }
    let sites = say_where_sites_are(&config, &edge);
    let (base_url, drain) = (config.base_url(), config.drain_timeout);
    let clock = beside.as_ref().map(|beside| beside.clock.clone());
    let node = Node::start_by(config, clock).await?;

    let (stop, stopping) = watch::channel(false);
    let mut tasks = JoinSet::new();
    for task in &node.tasks {
        tasks.spawn(task.supervise(node.janua.clone()));
    }
    let worker = tokio::spawn(Worker::new(node.janua.clone(), node.jobs.clone()).run(told(stopping.clone())));
    let mut greeting = vec![
        format!("Janua {VERSION} listens on http://{address} (base URL {base_url})"),
        format!("The console is at {base_url}/console"),
    ];
    greeting.extend(sites);
    if let Some(link) = identity::first_owner::link(&node.janua).await? {
        greeting.push(format!("This installation has no owner yet. Create the owner's account at {link}"));
    }
    tasks.spawn(give_memory_back());
    if beside.is_none() {
        greet(greeting.join("\n"));
    }

    let sites = match edge {
        Bound::Listening(listener) => Some(edge::serve(listener, node.janua.clone(), told(stopping.clone()))),
        Bound::Off | Bound::Taken(_) => None,
    };
    let mut sites: Vec<_> = sites.map(tokio::spawn).into_iter().collect();
    if let Some(address) = node.janua.config.of::<hosting::Settings>().edge_tls_listen {
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("cannot listen on {address} (setting edge_tls_listen)"))?;
        sites.push(tokio::spawn(certificates::serve_edge(listener, node.janua.clone(), told(stopping.clone()))));
    }
    let secure = secure(&node, &stopping).await?;
    let redirect = secure.is_some().then(|| certificates::redirect(&node.janua));
    let plain = Listening { intercept: intercept(&node, redirect), ..Listening::default() };
    let serving = tokio::spawn(serve_with(listener, node.door.clone(), told(stopping), plain));
    let is_signal = match beside {
        Some(Beside { started, stopped, .. }) => {
            let _ = started.send(Started { url: format!("http://{address}"), janua: node.janua.clone() });
            tokio::select! {
                signal = wait_for_signal() => signal.map(|()| true)?,
                _ = stopped => false,
            }
        }
        None => wait_for_signal().await.map(|()| true)?,
    };
    // A second signal means now.
    tokio::spawn(async move {
        if is_signal && wait_for_signal().await.is_ok() {
            kernel::telemetry::flush(crate::LAST_LINES);
            std::process::exit(130);
        }
    });
    let _ = stop.send(true);
    let mut cut_off = serving.await?;
    if let Some(secure) = secure {
        cut_off += secure.await?;
    }
    if cut_off > 0 {
        tracing::warn!(cut_off, "connections were still open after the drain time");
    }
    for site in sites {
        site.await?;
    }
    if timeout(drain, worker).await.is_err() {
        tracing::warn!("a job was still running after the drain time; another run will repeat it");
    }
    tasks.shutdown().await;
    // The figures of the last minute, which no task keeps any more.
    if let Err(fault) = insights::keep_counts(&node.janua).await {
        tracing::warn!(%fault, "cannot keep what this node counted last");
    }
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// What is answered before the API is asked, beside a redirect: sites have listeners of their own.
fn intercept(node: &Node, redirect: Option<Intercept>) -> Option<Intercept> {
    let config = &node.janua.config;
    let serves_sites = config.of::<edge::Settings>().edge_listen.is_some()
        || config.of::<hosting::Settings>().edge_tls_listen.is_some();
    if serves_sites { Some(edge::refuse_sites(&node.janua, redirect)) } else { redirect }
}

/// The same service over TLS, if it ends here.
async fn secure(node: &Node, stopping: &watch::Receiver<bool>) -> Result<Option<JoinHandle<usize>>> {
    let settings = node.janua.config.of::<hosting::Settings>();
    if settings.tls == TlsSource::Off {
        return Ok(None);
    }
    let listener = TcpListener::bind(settings.tls_listen).await;
    let listener =
        listener.with_context(|| format!("cannot listen on {} (setting tls_listen)", settings.tls_listen))?;
    tracing::info!(address = %listener.local_addr()?, "listening with TLS");
    let handshake = Some(certificates::handshake(&node.janua));
    let listening = Listening { handshake, intercept: intercept(node, None) };
    Ok(Some(tokio::spawn(serve_with(listener, node.door.clone(), told(stopping.clone()), listening))))
}

/// One line about the edge.
fn say_where_sites_are(config: &Config, edge: &Bound) -> Option<String> {
    match edge {
        Bound::Listening(_) => Some(format!("Deployed sites are at {}", EdgeUrl::of(config).url("{slug}"))),
        Bound::Off => None,
        Bound::Taken(address) => {
            tracing::warn!(%address, "the edge's port is taken; deployed sites are not served (setting edge_listen)");
            Some(format!(
                "Deployed sites are not served, because {address} is taken. Set JANUA_EDGE_LISTEN to another."
            ))
        }
    }
}

/// Says where the service is, all at once: whoever reads the first line can read the rest. On a thread of its own, which ends
/// with the process: where nobody takes the output, it is served all the same.
fn greet(greeting: String) {
    let spawned = thread::Builder::new().name("greeting".into()).spawn(move || say(&greeting, Out::Plain));
    if let Err(error) = spawned {
        tracing::warn!(%error, "cannot print the listening address");
    }
}

/// The allocator looks for what can go back to the system whenever a thread ends. While nobody asks for anything none
/// does, so one comes by for it, and an idle server is as small as it can be.
async fn give_memory_back() {
    loop {
        sleep(TIDY_EVERY).await;
        // One that never took anything would not count. Where no thread can be had, another time will do.
        let _ = thread::Builder::new().spawn(|| drop(black_box(Box::new(0_u64))));
    }
}

pub async fn migrate(config: Config) -> Result<ExitCode> {
    start::make_folder(&config.data_dir)?;
    let db = start::open(&config).await?;
    let applied = db.migrate(Clock::shared(&db).now().0).await?;
    for step in &applied {
        say(&format!("applied {step}"), Out::Plain);
    }
    if applied.is_empty() {
        say("the database is up to date", Out::Plain);
    }
    Ok(ExitCode::SUCCESS)
}

async fn told(mut stopping: watch::Receiver<bool>) {
    // An error means that the sender is gone, which is the end as well.
    let _ = stopping.wait_for(|stop| *stop).await;
}

async fn wait_for_signal() -> Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
