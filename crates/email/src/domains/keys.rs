//! DKIM keys: made for one app and host, sealed, and used to sign.
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use aws_lc_rs::{
    encoding::{AsDer as _, Pkcs8V1Der, PublicKeyX509Der},
    rsa::{KeyPair as RsaPair, KeySize},
    signature::{Ed25519KeyPair, KeyPair as _},
};
use data_encoding::BASE64;
use kernel::{
    Janua,
    clock::Timestamp,
    crypto,
    fault::{Fault, INTERNAL, Result},
};
use mail_auth::{
    common::{
        crypto::{Ed25519Key, RsaKey, Sha256, SigningKey},
        headers::HeaderWriter as _,
    },
    dkim::{Canonicalization, DkimSigner, Done},
};
use rustls::pki_types::PrivateKeyDer;
use tenancy::apps::ApplicationId;

use super::model::{NewKey, SealedKey};
use crate::words::Algorithm;

const PURPOSE: &str = "dkim";
/// What is signed, whether it is there or not. Naming `From` twice keeps anybody from adding a second one. `Date` and
/// `Message-ID` are left out because some relays write their own.
const HEADERS: &[&str] = &[
    "From",
    "From",
    "To",
    "Cc",
    "Subject",
    "Reply-To",
    "MIME-Version",
    "Content-Type",
    "List-Unsubscribe",
    "List-Unsubscribe-Post",
    "In-Reply-To",
    "References",
];
/// Keys that were opened are kept in memory for so long, and no more of them than this.
const KEPT: Duration = Duration::from_secs(30);
const MOST: usize = 1000;

fn place(app: ApplicationId, host: &str, selector: &str) -> String {
    format!("email_key:sealed:{app}:{host}:{selector}")
}

fn wrong(error: impl std::fmt::Display) -> Fault {
    INTERNAL.caused_by(error)
}

/// A pair of new keys, one of each kind. Takes a while: never in a transaction.
pub async fn generate(janua: &Janua, app: ApplicationId, host: &str, generation: i64) -> Result<Vec<NewKey>> {
    let digest = crypto::hash(format!("{app}\n{host}").as_bytes());
    let turn = if generation == 1 { String::new() } else { generation.to_string() };
    let made = tokio::task::spawn_blocking(|| {
        let rsa = RsaPair::generate(KeySize::Rsa2048).map_err(wrong)?;
        let rsa_private: Pkcs8V1Der = rsa.as_der().map_err(wrong)?;
        let rsa_public: PublicKeyX509Der = rsa.public_key().as_der().map_err(wrong)?;
        let edwards = Ed25519KeyPair::generate().map_err(wrong)?;
        let edwards_private = edwards.to_pkcs8().map_err(wrong)?;
        let rsa = (BASE64.encode(rsa_public.as_ref()), rsa_private.as_ref().to_vec());
        Ok::<_, Fault>((rsa, (BASE64.encode(edwards.public_key().as_ref()), edwards_private.as_ref().to_vec())))
    });
    let (rsa, edwards) = made.await.map_err(wrong)??;
    let key = |algorithm: Algorithm, letter: char, (public_key, private): (String, Vec<u8>)| {
        let selector = format!("j{}{letter}{turn}", &digest[..8]);
        let sealed = janua.vault.seal(PURPOSE, &place(app, host, &selector), &private);
        NewKey { generation, algorithm, selector, public_key, sealed }
    };
    Ok(vec![key(Algorithm::Rsa, 'a', rsa), key(Algorithm::Ed25519, 'b', edwards)])
}

enum Signer {
    Rsa(DkimSigner<RsaKey<Sha256>, Done>),
    Ed25519(DkimSigner<Ed25519Key, Done>),
}

/// The keys that this node has opened lately.
#[derive(Default)]
pub struct Keyring(Mutex<HashMap<(ApplicationId, String, i64), Opened>>);

#[derive(Clone)]
struct Opened {
    at: Timestamp,
    signers: Arc<Vec<Signer>>,
}

impl Keyring {
    /// The mail with a signature by each key of this generation.
    pub async fn sign(
        &self,
        janua: &Janua,
        app: ApplicationId,
        host: &str,
        generation: i64,
        mail: Vec<u8>,
    ) -> Result<Vec<u8>> {
        let signers = self.signers(janua, app, host, generation).await?;
        if signers.is_empty() {
            return Err(INTERNAL.caused_by("a verified domain has no key"));
        }
        let mut signed = vec![];
        for signer in signers.iter() {
            let signature = match signer {
                Signer::Rsa(signer) => signer.sign(&mail),
                Signer::Ed25519(signer) => signer.sign(&mail),
            };
            signature.map_err(wrong)?.write_header(&mut signed);
        }
        signed.extend(mail);
        Ok(signed)
    }

    async fn signers(
        &self,
        janua: &Janua,
        app: ApplicationId,
        host: &str,
        generation: i64,
    ) -> Result<Arc<Vec<Signer>>> {
        let (now, id) = (janua.clock.now(), (app, host.to_owned(), generation));
        let known = db::lock(&self.0).get(&id).filter(|known| known.at <= now && now.since(known.at) < KEPT).cloned();
        if let Some(known) = known {
            return Ok(known.signers);
        }
        let mut signers = vec![];
        for key in SealedKey::of(&janua.db, app, host, generation).await? {
            let private = janua.vault.open(PURPOSE, &place(app, host, &key.selector), &key.sealed).map_err(wrong)?;
            signers.push(match key.algorithm {
                Algorithm::Rsa => {
                    let der = PrivateKeyDer::Pkcs8(private.to_vec().into());
                    Signer::Rsa(signer(RsaKey::<Sha256>::from_key_der(der).map_err(wrong)?, host, &key.selector))
                }
                Algorithm::Ed25519 => {
                    let pair = Ed25519Key::from_pkcs8_maybe_unchecked_der(&private).map_err(wrong)?;
                    Signer::Ed25519(signer(pair, host, &key.selector))
                }
            });
        }
        let signers = Arc::new(signers);
        let mut opened = db::lock(&self.0);
        if opened.len() >= MOST {
            opened.clear();
        }
        opened.insert(id, Opened { at: now, signers: signers.clone() });
        Ok(signers)
    }
}

fn signer<T: SigningKey>(key: T, host: &str, selector: &str) -> DkimSigner<T, Done> {
    DkimSigner::from_key(key)
        .domain(host)
        .selector(selector)
        .headers(HEADERS.iter().copied())
        .header_canonicalization(Canonicalization::Relaxed)
        .body_canonicalization(Canonicalization::Relaxed)
}
