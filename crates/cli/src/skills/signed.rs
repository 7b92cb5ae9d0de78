//! What a version is signed with: the manifest names the package and every file.
use std::collections::BTreeMap;

use aws_lc_rs::{
    digest,
    signature::{ED25519, UnparsedPublicKey},
};
use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use serde_json::Value;

use crate::{
    failure::{Failure, Result},
    output::text_at,
};

pub struct Manifest {
    pub slug: String,
    pub version: String,
    /// Of the package: `sha256:` and 64 hexadecimal digits.
    pub digest: String,
    /// The digests of the files by their paths.
    pub files: BTreeMap<String, String>,
}

impl Manifest {
    /// Reads a signed manifest. `keys` is what the server publishes at `/.well-known/skills-pubkey`.
    pub fn verify(signature: &Value, keys: &Value) -> Result<Self> {
        let bad = |why: &str| Failure::failed(format!("The signature is not valid: {why}."));
        let kid = signature["kid"].as_str().unwrap_or_default();
        let mut known = keys["keys"].as_array().into_iter().flatten();
        let key = known.find(|key| key["kid"] == kid).ok_or_else(|| bad("the server has no such key"))?;
        let raw = |value: &Value| BASE64URL_NOPAD.decode(value.as_str().unwrap_or_default().as_bytes()).ok();
        let public = raw(&key["x"]).ok_or_else(|| bad("the key cannot be read"))?;
        let value = raw(&signature["value"]).ok_or_else(|| bad("it cannot be read"))?;
        let text = signature["manifest"].as_str().unwrap_or_default();
        let is_good = UnparsedPublicKey::new(&ED25519, &public).verify(text.as_bytes(), &value);
        is_good.map_err(|_| bad("it is of another text or by another key"))?;
        let manifest: Value = serde_json::from_str(text)?;
        let files = manifest["files"].as_array().into_iter().flatten();
        Ok(Self {
            slug: text_at(&manifest, "slug"),
            version: text_at(&manifest, "version"),
            digest: text_at(&manifest, "digest"),
            files: files.map(|file| (text_at(file, "path"), text_at(file, "digest"))).collect(),
        })
    }
}

/// As manifests write it.
pub fn digest_of(bytes: &[u8]) -> String {
    format!("sha256:{}", HEXLOWER.encode(digest::digest(&digest::SHA256, bytes).as_ref()))
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_manifest_counts_only_under_a_key_of_the_server() {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let text = json!({ "slug": "acme.x", "version": "1.0.0", "digest": "sha256:0", "files": [] }).to_string();
        let value = BASE64URL_NOPAD.encode(pair.sign(text.as_bytes()).as_ref());
        let signed = json!({ "kid": "k", "value": value, "manifest": text });
        let keys = |seed: [u8; 32]| {
            let pair = Ed25519KeyPair::from_seed_unchecked(&seed).unwrap();
            json!({ "keys": [{ "kid": "k", "x": BASE64URL_NOPAD.encode(pair.public_key().as_ref()) }] })
        };
        assert_eq!(Manifest::verify(&signed, &keys([7; 32])).unwrap().slug, "acme.x");
        assert!(Manifest::verify(&signed, &keys([8; 32])).is_err());
        assert!(Manifest::verify(&signed, &json!({ "keys": [] })).is_err());
        let mut other = signed.clone();
        other["manifest"] = json!(text.replace("acme", "evil"));
        assert!(Manifest::verify(&other, &keys([7; 32])).is_err());
    }
}
