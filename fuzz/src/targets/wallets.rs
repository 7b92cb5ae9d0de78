//! Wallets of agents, their signatures, and the text that they sign (EIP-4361).
use std::sync::LazyLock;

use agents::{
    challenge::{self, Challenge},
    wallet::Wallet,
};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use data_encoding::{BASE64, HEXLOWER};
use k256::ecdsa::SigningKey;
use serde_json::json;
use sha3::{Digest as _, Keccak256};

use crate::texts;

const SOLANA: &str = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp";
const TEXT: &str = "a text that is signed";
/// The order of secp256k1.
const ORDER: [u8; 32] = [
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe, 0xba, 0xae, 0xdc,
    0xe6, 0xaf, 0x48, 0xa0, 0x3b, 0xbf, 0xd2, 0x5e, 0x8c, 0xd0, 0x36, 0x41, 0x41,
];

fn chains() -> Vec<String> {
    vec!["eip155:1".into(), "eip155:137".into(), SOLANA.into()]
}

/// Wallets of the fuzzer's own, with a signature of [`TEXT`] each.
struct Own {
    evm: String,
    /// `r`, `s` and `v`.
    evm_signature: [u8; 65],
    solana: String,
    solana_signature: Vec<u8>,
}

/// Made once: without optimisation it takes a while.
static OWN: LazyLock<Own> = LazyLock::new(Own::new);

impl Own {
    fn new() -> Self {
        let key = SigningKey::from_slice(&[7; 32]).expect("a key");
        let point = key.verifying_key().to_sec1_point(false);
        let address = HEXLOWER.encode(&Keccak256::digest(&point.as_bytes()[1..])[12..]);
        let hash = Keccak256::digest(format!("\x19Ethereum Signed Message:\n{}{TEXT}", TEXT.len()));
        let (signature, recovery) = key.sign_prehash_recoverable(&hash);
        let mut evm_signature = [0; 65];
        evm_signature[..64].copy_from_slice(&signature.to_bytes());
        evm_signature[64] = recovery.to_byte() + 27;
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("a key");
        Self {
            evm: format!("0x{address}"),
            evm_signature,
            solana: bs58::encode(pair.public_key().as_ref()).into_string(),
            solana_signature: pair.sign(TEXT.as_bytes()).as_ref().to_vec(),
        }
    }

    /// The other signature that the same key and text have: `s` taken from the order.
    fn twin(&self) -> [u8; 65] {
        let mut twin = self.evm_signature;
        let mut borrow = 0_i16;
        for at in (0..32).rev() {
            let digit = i16::from(ORDER[at]) - i16::from(self.evm_signature[32 + at]) - borrow;
            borrow = i16::from(digit < 0);
            twin[32 + at] = u8::try_from(digit.rem_euclid(256)).unwrap_or_default();
        }
        twin[64] ^= 7;
        twin
    }
}

/// A wallet and a signature. `OWN` stands for a wallet whose key is known, `SOL` for one of Solana, `SIGNED` for its signature and
/// `TWIN` for the second one that anybody can make from it. An address is read again from each form it is shown in.
pub fn wallet(data: &[u8]) -> bool {
    let Some([text, signature]) = texts(data) else { return false };
    let own = &*OWN;
    let text = text.replace("OWN", &own.evm).replace("SOL", &own.solana);
    let Ok(wallet) = Wallet::parse(&text, None, &chains()) else { return false };
    for form in [wallet.caip10(), wallet.to_string()] {
        assert_eq!(Wallet::parse(&form, None, &chains()).ok().as_ref(), Some(&wallet), "{form}");
    }
    if wallet.chain == "1" || text.starts_with("solana") {
        assert_eq!(Wallet::parse(&wallet.address(), None, &chains()).ok().as_ref(), Some(&wallet), "{text}");
    }
    let stored = Wallet::stored(wallet.namespace.name(), wallet.chain.clone(), wallet.key.clone());
    assert_eq!(stored, wallet, "a stored wallet is the same");
    assert!(text.len() <= 200 && wallet.caip10().len() <= 120, "{text}");

    let is_evm = wallet.key.starts_with("0x");
    let twin = format!("0x{}", HEXLOWER.encode(&own.twin()));
    assert!(!wallet.signed(TEXT, &twin), "a second signature that anybody can make");
    let right = if is_evm {
        format!("0x{}", HEXLOWER.encode(&own.evm_signature))
    } else {
        bs58::encode(&own.solana_signature).into_string()
    };
    let is_own = wallet.key == own.evm || wallet.key == own.solana;
    assert_eq!(wallet.signed(TEXT, &right), is_own, "{text}");
    let signature = signature.replace("SIGNED", &right).replace("TWIN", &twin);
    if wallet.signed(TEXT, &signature) {
        assert!(is_own, "{text}: signed by another key");
        if is_evm {
            let plain = signature.to_ascii_lowercase();
            let (known, v) = (HEXLOWER.encode(&own.evm_signature[..64]), own.evm_signature[64]);
            assert!(
                [v, v - 27].iter().any(|v| plain == format!("0x{known}{v:02x}")),
                "{signature}: another signature counts"
            );
        } else {
            assert!(signature == right || signature == BASE64.encode(&own.solana_signature), "{signature}");
        }
    }
    for other in ["", "a text that is signed ", "another"] {
        assert!(!wallet.signed(other, &signature), "{other}: another text");
    }
    true
}

const BASE: &str = "https://id.example";

/// A wallet, a resource and scopes, as a caller asks for them. A plain reader of the text finds each in its place and nothing else.
pub fn sign_in_text(data: &[u8]) -> bool {
    let Some([wallet, resource, scopes]) = texts(data) else { return false };
    let wallet = wallet.replace("OWN", &OWN.evm).replace("SOL", &OWN.solana);
    let Ok(wallet) = Wallet::parse(&wallet, None, &chains()) else { return false };
    let scopes: Vec<&str> = scopes.split(' ').filter(|scope| !scope.is_empty()).collect();
    let is_allowed = (resource.is_empty() || challenge::is_resource(resource, BASE))
        && scopes.iter().all(|scope| challenge::is_scope(scope));
    if !is_allowed {
        return false;
    }
    let asked: Challenge = serde_json::from_value(json!({
        "w": wallet.key, "c": wallet.namespace.name(), "r": wallet.chain, "a": null,
        "t": (!resource.is_empty()).then_some(resource), "s": scopes, "n": "0123456789abcdef012345",
        "i": "2026-01-31T10:00:00.000Z",
    }))
    .expect("a challenge");
    let text = asked.message(BASE);
    let lines: Vec<&str> = text.split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}', '\u{b}', '\u{c}']).collect();
    let account = if wallet.key.starts_with("0x") { "Ethereum" } else { "Solana" };
    let mut expected = vec![
        format!("id.example wants you to sign in with your {account} account:"),
        wallet.address(),
        String::new(),
        "Sign in as an agent. This request costs nothing and moves nothing.".into(),
        String::new(),
        format!("URI: {BASE}/agent/token"),
        "Version: 1".into(),
        format!("Chain ID: {}", wallet.chain),
        "Nonce: 0123456789abcdef012345".into(),
        "Issued At: 2026-01-31T10:00:00.000Z".into(),
        "Expiration Time: 2026-01-31T10:05:00.000Z".into(),
    ];
    let scopes = scopes.iter().map(|scope| format!("- urn:janua:scope:{scope}"));
    let mut resources: Vec<String> = scopes.collect();
    if !resource.is_empty() {
        resources.insert(0, format!("- {resource}"));
    }
    if !resources.is_empty() {
        expected.push("Resources:".into());
        expected.extend(resources);
    }
    assert_eq!(lines, expected, "{text}");
    assert!(text.is_ascii(), "{text}: what looks alike may be another");
    true
}
