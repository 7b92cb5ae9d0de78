//! The text that a wallet signs (EIP-4361), and the sealed challenge that it is built from. Nothing is stored until a
//! signature is redeemed: the server builds the same text again, so no text of others is ever parsed.
use std::{fmt::Write as _, time::Duration};

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use kernel::{Janua, clock::Timestamp};
use serde::{Deserialize, Serialize};
use tenancy::machines::{MachineId, targets};
use url::{Position, Url};

use super::wallet::{Namespace, Wallet};
pub use crate::shared::is_scope;

pub const LIFE: Duration = Duration::from_mins(5);
const PURPOSE: &str = "agent-challenge";
const PLACE: &str = "agent:challenge";
const STATEMENT: &str = "Sign in as an agent. This request costs nothing and moves nothing.";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Challenge {
    #[serde(rename = "w")]
    key: String,
    #[serde(rename = "c")]
    namespace: String,
    #[serde(rename = "r")]
    chain: String,
    #[serde(rename = "a")]
    pub agent: Option<MachineId>,
    #[serde(rename = "t")]
    pub resource: Option<String>,
    #[serde(rename = "s")]
    pub scopes: Option<Vec<String>>,
    #[serde(rename = "n")]
    pub nonce: String,
    #[serde(rename = "i")]
    pub issued: Timestamp,
}

/// Whether a text can be the resource of a challenge. It becomes a line of the text to sign, so nothing may be in it that could
/// look like another line.
pub fn is_resource(text: &str, base: &str) -> bool {
    text == base || targets::resource(text).is_some()
}

impl Challenge {
    pub fn new(
        janua: &Janua,
        wallet: &Wallet,
        agent: Option<MachineId>,
        resource: Option<String>,
        scopes: Option<Vec<String>>,
    ) -> Self {
        Self {
            key: wallet.key.clone(),
            namespace: wallet.namespace.name().to_owned(),
            chain: wallet.chain.clone(),
            agent,
            resource,
            scopes,
            nonce: HEXLOWER.encode(&janua.entropy.bytes::<11>()),
            issued: janua.clock.now(),
        }
    }

    pub fn wallet(&self) -> Wallet {
        Wallet::stored(&self.namespace, self.chain.clone(), self.key.clone())
    }

    pub fn expires_at(&self) -> Timestamp {
        self.issued.plus(LIFE)
    }

    pub fn seal(&self, janua: &Janua) -> String {
        let plain = serde_json::to_vec(self).unwrap_or_default();
        BASE64URL_NOPAD.encode(&janua.vault.seal(PURPOSE, PLACE, &plain))
    }

    pub fn open(janua: &Janua, text: &str) -> Option<Self> {
        let sealed = BASE64URL_NOPAD.decode(text.as_bytes()).ok()?;
        serde_json::from_slice(&janua.vault.open(PURPOSE, PLACE, &sealed).ok()?).ok()
    }

    /// What the wallet signs, for a service at this URL. The order of the lines is that of the standard.
    pub fn message(&self, base: &str) -> String {
        let wallet = self.wallet();
        let url = Url::parse(base).ok();
        let domain = url.as_ref().map_or("", |url| &url[Position::BeforeHost..Position::AfterPort]);
        let account = match wallet.namespace {
            Namespace::Eip155 => "Ethereum account",
            Namespace::Solana => "Solana account",
        };
        let mut text = format!(
            "{domain} wants you to sign in with your {account}:\n{}\n\n{STATEMENT}\n\nURI: {base}/agent/token\n\
             Version: 1\nChain ID: {}\nNonce: {}\nIssued At: {}\nExpiration Time: {}",
            wallet.address(),
            self.chain,
            self.nonce,
            self.issued,
            self.expires_at()
        );
        if let Some(agent) = self.agent {
            let _ = write!(text, "\nRequest ID: {agent}");
        }
        let scopes = self.scopes.iter().flatten().map(|scope| format!("urn:janua:scope:{scope}"));
        let resources: Vec<String> = self.resource.iter().cloned().chain(scopes).collect();
        if !resources.is_empty() {
            text.push_str("\nResources:");
            for resource in resources {
                let _ = write!(text, "\n- {resource}");
            }
        }
        text
    }
}
