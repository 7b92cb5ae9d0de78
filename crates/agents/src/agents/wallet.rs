//! Wallets: addresses of EVM chains and of Solana, and the signatures they make.
//!
//! An EVM address is recovered from the signature with `k256`: aws-lc-rs verifies with a known public key alone, and an
//! address is only a hash of one. No secret is involved. Solana signatures are checked by aws-lc-rs, which accepts
//! signatures that nobody made for keys of small order, so such keys are no wallets here.
use std::fmt;

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use data_encoding::{BASE64, HEXLOWER, HEXLOWER_PERMISSIVE};
use k256::ecdsa::{RecoveryId, Signature, VerifyingKey};
use kernel::fault::{Code, Fault};
use sha3::{Digest as _, Keccak256};

pub const INVALID_WALLET: Code = Code::new(400, "invalid_wallet", "This is not a wallet address.");
pub const UNSUPPORTED_CHAIN: Code =
    Code::new(400, "unsupported_chain", "Wallets of this chain are not accepted here.");

const SOLANA_MAINNET: &str = "5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespace {
    /// EVM chains.
    Eip155,
    Solana,
}

impl Namespace {
    pub fn name(self) -> &'static str {
        match self {
            Self::Eip155 => "eip155",
            Self::Solana => "solana",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        [Self::Eip155, Self::Solana].into_iter().find(|one| one.name() == name)
    }
}

/// A wallet, and the chain that texts to sign name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wallet {
    pub namespace: Namespace,
    pub chain: String,
    /// As it is compared: lower case for EVM chains, as it is for Solana.
    pub key: String,
}

fn invalid(why: &str) -> Fault {
    INVALID_WALLET.because(why)
}

impl Wallet {
    /// Reads an address or a CAIP-10 account. `chains` lists the chains that are accepted, as in CAIP-2.
    pub fn parse(text: &str, chain: Option<u64>, chains: &[String]) -> Result<Self, Fault> {
        let mut parts = text.split(':');
        let (namespace, reference, address) = match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(address), None, ..) => (None, None, address),
            (Some(namespace), Some(reference), Some(address), None) => {
                let known = Namespace::named(namespace).ok_or(UNSUPPORTED_CHAIN)?;
                (Some(known), Some(reference.to_owned()), address)
            }
            _ => return Err(invalid("Send a wallet address, or an account as in CAIP-10.")),
        };
        let is_evm = address.starts_with("0x") || address.starts_with("0X");
        let namespace = namespace.unwrap_or(if is_evm { Namespace::Eip155 } else { Namespace::Solana });
        let (key, default) = match namespace {
            Namespace::Eip155 => (evm_key(address)?, chain.unwrap_or(1).to_string()),
            Namespace::Solana => (solana_key(address)?, SOLANA_MAINNET.to_owned()),
        };
        let chain = reference.unwrap_or(default);
        let caip2 = format!("{}:{chain}", namespace.name());
        if !chains.contains(&caip2) {
            return Err(UNSUPPORTED_CHAIN.because(format!("{caip2} is not one of the accepted chains.")));
        }
        Ok(Self { namespace, chain, key })
    }

    /// A wallet as it was stored.
    pub fn stored(namespace: &str, chain: String, key: String) -> Self {
        Self { namespace: Namespace::named(namespace).unwrap_or(Namespace::Eip155), chain, key }
    }

    /// As people see it: with the checksum of EIP-55 for EVM chains.
    pub fn address(&self) -> String {
        match self.namespace {
            Namespace::Eip155 => checksummed(self.key.trim_start_matches("0x")),
            Namespace::Solana => self.key.clone(),
        }
    }

    pub fn caip10(&self) -> String {
        format!("{}:{}:{}", self.namespace.name(), self.chain, self.address())
    }

    /// Whether the wallet signed this text.
    pub fn signed(&self, text: &str, signature: &str) -> bool {
        match self.namespace {
            Namespace::Eip155 => recovered(text, signature).is_some_and(|key| key == self.key),
            Namespace::Solana => solana_signed(&self.key, text, signature),
        }
    }
}

impl fmt::Display for Wallet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.caip10())
    }
}

fn evm_key(address: &str) -> Result<String, Fault> {
    let digits = address.strip_prefix("0x").ok_or_else(|| invalid("It must start with 0x."))?;
    if digits.len() != 40 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(invalid("It must have 40 hexadecimal digits."));
    }
    let lower = digits.to_ascii_lowercase();
    let is_plain = digits == lower || digits == digits.to_ascii_uppercase();
    if !is_plain && address != checksummed(&lower) {
        return Err(invalid("Its checksum is wrong: a letter was mistyped."));
    }
    // The zero address and the contracts that chains come with; nobody has a key of them.
    let is_reserved = lower.bytes().take(37).all(|b| b == b'0') && lower.as_bytes()[37] <= b'1';
    if is_reserved {
        return Err(invalid("This wallet address is not valid."));
    }
    Ok(format!("0x{lower}"))
}

/// EIP-55: letters are upper case where the hash of the address has a high digit.
fn checksummed(lower: &str) -> String {
    let hash = HEXLOWER.encode(&Keccak256::digest(lower.as_bytes()));
    let digits = lower.chars().zip(hash.bytes()).map(
        |(digit, hash)| {
            if hash >= b'8' { digit.to_ascii_uppercase() } else { digit }
        },
    );
    format!("0x{}", digits.collect::<String>())
}

/// Half of the order of secp256k1: each signature has a twin with an `s` above it.
const HALF_ORDER: [u8; 32] = [
    0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x5d, 0x57, 0x6e,
    0x73, 0x57, 0xa4, 0x50, 0x1d, 0xdf, 0xe9, 0x2f, 0x46, 0x68, 0x1b, 0x20, 0xa0,
];

/// The address whose key signed a text as EIP-191 says.
fn recovered(text: &str, signature: &str) -> Option<String> {
    let bytes = HEXLOWER_PERMISSIVE.decode(signature.strip_prefix("0x")?.as_bytes()).ok()?;
    let (rs, v) = bytes.split_at_checked(64)?;
    let recovery = match v {
        [0 | 27] => 0,
        [1 | 28] => 1,
        _ => return None,
    };
    if rs[32..] > HALF_ORDER[..] {
        return None;
    }
    let mut hash = Keccak256::new();
    hash.update(format!("\x19Ethereum Signed Message:\n{}", text.len()));
    hash.update(text);
    let signature = Signature::from_slice(rs).ok()?;
    let key =
        VerifyingKey::recover_from_prehash(&hash.finalize(), &signature, RecoveryId::from_byte(recovery)?).ok()?;
    let point = key.to_sec1_point(false);
    let hash = Keccak256::digest(&point.as_bytes()[1..]);
    Some(format!("0x{}", HEXLOWER.encode(&hash[12..])))
}

fn base58(text: &str) -> Option<Vec<u8>> {
    bs58::decode(text).into_vec().ok()
}

fn solana_key(address: &str) -> Result<String, Fault> {
    let bytes = base58(address).filter(|bytes| bytes.len() == 32 && address.len() <= 44);
    let bytes = bytes.ok_or_else(|| invalid("It must be 0x and 40 hexadecimal digits, or 32 bytes in base58."))?;
    if !is_usable(&bytes) {
        return Err(invalid("This wallet address is not valid."));
    }
    Ok(address.to_owned())
}

/// The encodings of the points of small order, without the sign bit. For such a key anybody can make signatures.
const SMALL_ORDER: [[u8; 32]; 5] = [
    // 0, of order 4.
    [0; 32],
    // 1, the identity.
    {
        let mut y = [0; 32];
        y[0] = 1;
        y
    },
    // Order 8, twice.
    [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0, 0xd5, 0xdf,
        0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
    ],
    [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f, 0x2a, 0x20,
        0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
    ],
    // -1, of order 2.
    {
        let mut y = [0xff; 32];
        y[0] = 0xec;
        y[31] = 0x7f;
        y
    },
];

/// Whether a key has one spelling and is no point of small order.
fn is_usable(key: &[u8]) -> bool {
    let Ok(mut y) = <[u8; 32]>::try_from(key) else { return false };
    y[31] &= 0x7f;
    // A coordinate of 2^255 - 19 or more is another spelling of a smaller one.
    let is_canonical = !(y[0] >= 0xed && y[1..31].iter().all(|byte| *byte == 0xff) && y[31] == 0x7f);
    is_canonical && !SMALL_ORDER.contains(&y)
}

fn solana_signed(address: &str, text: &str, signature: &str) -> bool {
    let by_base64 = || BASE64.decode(signature.as_bytes()).ok().filter(|bytes| bytes.len() == 64);
    let bytes = base58(signature).filter(|bytes| bytes.len() == 64).or_else(by_base64);
    match (base58(address), bytes) {
        (Some(key), Some(bytes)) if is_usable(&key) => {
            UnparsedPublicKey::new(&ED25519, key).verify(text.as_bytes(), &bytes).is_ok()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::VerifyingKey as Strict;

    use super::*;

    fn chains() -> Vec<String> {
        vec!["eip155:1".into(), "eip155:137".into(), format!("solana:{SOLANA_MAINNET}")]
    }

    fn parse(text: &str) -> Result<Wallet, &'static str> {
        Wallet::parse(text, None, &chains()).map_err(|fault| fault.code().name)
    }

    #[test]
    fn m04_an_address_has_one_key_however_it_is_written() {
        let shown = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";
        let lower = shown.to_lowercase();
        for same in [shown, &lower, &format!("0x{}", shown[2..].to_uppercase()), &format!("eip155:1:{shown}")] {
            let wallet = parse(same).unwrap_or_else(|code| panic!("{same}: {code}"));
            assert_eq!((wallet.key.as_str(), wallet.address().as_str()), (lower.as_str(), shown));
        }
        assert_eq!(parse(&format!("eip155:137:{shown}")).map(|one| one.caip10()), Ok(format!("eip155:137:{shown}")));
        for wrong in [
            "0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
            "0X5aaeb6053f3e94c9b9a09f33669435e7ef1beaed",
            "5aaeb6053f3e94c9b9a09f33669435e7ef1beaed",
            "0x5aaeb6053f3e94c9b9a09f33669435e7ef1beae",
            "0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaedd",
            "0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaeg",
            "0x0000000000000000000000000000000000000000",
            "0x0000000000000000000000000000000000000001",
            "0x00000000000000000000000000000000000001ff",
            "eip155:1",
            "eip155:1:0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed:x",
            "",
        ] {
            assert_eq!(parse(wrong).err(), Some("invalid_wallet"), "{wrong}");
        }
        assert!(parse("0x0000000000000000000000000000000000000200").is_ok());
        for elsewhere in ["eip155:5:0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed", "bip122:0:1abc"] {
            assert_eq!(parse(elsewhere).err(), Some("unsupported_chain"), "{elsewhere}");
        }
    }

    /// What a strict verifier says of a key: whether signatures nobody made could count.
    fn is_weak(key: [u8; 32]) -> bool {
        Strict::from_bytes(&key).map_or(true, |key| key.is_weak())
    }

    #[test]
    fn keys_of_small_order_are_no_wallets() {
        for mut y in SMALL_ORDER {
            for sign in [0, 0x80] {
                y[31] = y[31] & 0x7f | sign;
                assert!(!is_usable(&y) && is_weak(y), "{y:?}");
                assert_eq!(parse(&bs58::encode(y).into_string()).err(), Some("invalid_wallet"));
            }
        }
        // Other spellings of 0 and 1.
        for first in [0xed, 0xee, 0xff] {
            let mut y = [0xff; 32];
            (y[0], y[31]) = (first, 0x7f);
            assert!(!is_usable(&y));
        }
        assert_eq!(parse("11111111111111111111111111111111").err(), Some("invalid_wallet"), "the system program");
        let known = parse("4Nd1mBQtrMJVYVfKf2PJy9NZUZdTAsp7D4xWLs4gDB4T").expect("a wallet");
        assert_eq!(known.caip10(), format!("solana:{SOLANA_MAINNET}:4Nd1mBQtrMJVYVfKf2PJy9NZUZdTAsp7D4xWLs4gDB4T"));
        assert_eq!(
            parse("4nd1mBQtrMJVYVfKf2PJy9NZUZdTAsp7D4xWLs4gDB4T").ok().map(|one| one.key == known.key),
            Some(false)
        );
    }

    #[test]
    fn a_signature_that_nobody_made_counts_for_no_wallet() {
        // R = the identity and S = 0 satisfy the equation for a key of small order.
        let mut forged = [0; 64];
        forged[0] = 1;
        let key = bs58::encode(SMALL_ORDER[1]).into_string();
        let signature = bs58::encode(forged).into_string();
        assert!(UnparsedPublicKey::new(&ED25519, SMALL_ORDER[1]).verify(b"anything", &forged).is_ok(), "as it is");
        assert!(!solana_signed(&key, "anything", &signature));
    }
}
