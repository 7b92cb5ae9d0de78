//! The edge over TLS: a handshake by name, then the same sites as without.
use std::{sync::Arc, time::Duration};

use kernel::Janua;
use tokio::net::TcpListener;

use super::tls::Keyring;
use crate::edge::{listener::Server, respond::Connection};

/// How long handshakes that are under way may take at the end.
const LAST: Duration = Duration::from_secs(1);

/// Serves sites over TLS until `stop`.
pub async fn serve(listener: TcpListener, janua: Janua, stop: impl Future<Output = ()>) {
    let server = Arc::new(Server::new(janua.clone()));
    let keyring = janua.own::<Arc<Keyring>>().clone();
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = server.accept(&listener) => accepted,
        };
        let Some((stream, peer, place)) = accepted else { continue };
        let (janua, keyring, server) = (janua.clone(), keyring.clone(), server.clone());
        tokio::spawn(async move {
            match keyring.accept(&janua, stream).await {
                Ok(Some(secured)) => {
                    let connection = Connection { sni: Some(secured.name.into()), peer: Some(peer.ip()) };
                    server.spawn(secured.stream, peer, connection, place);
                }
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, %peer, "a TLS handshake with the edge failed"),
            }
        });
    }
    drop(listener);
    tokio::time::sleep(LAST).await;
    if let Some(server) = Arc::into_inner(server) {
        server.finish().await;
    }
}
