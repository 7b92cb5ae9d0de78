//! What a delivery is signed with: the service's own scheme, or that of Standard Webhooks for whoever wants it.
use data_encoding::{BASE64, HEXLOWER};
use kernel::{
    clock::Timestamp,
    crypto::{HmacKey, Secret},
};

/// `t=<seconds>,v1=<hex>` with one `v1` for each key, that of the present secret first.
pub fn signature(keys: &[HmacKey], at: Timestamp, body: &[u8]) -> String {
    let seconds = at.0.div_euclid(1000).to_string();
    let mut header = format!("t={seconds}");
    for key in keys {
        header.push_str(",v1=");
        HEXLOWER.encode_append(&key.sign(&[seconds.as_bytes(), b".", body]), &mut header);
    }
    header
}

/// `v1,<base64>` for each key, as Svix and Standard Webhooks have it.
pub fn standard_signature(keys: &[HmacKey], id: &str, at: Timestamp, body: &[u8]) -> String {
    let before = format!("{id}.{}.", at.0.div_euclid(1000));
    let each = keys.iter().map(|key| key.sign(&[before.as_bytes(), body]));
    each.map(|mac| format!("v1,{}", BASE64.encode(&mac))).collect::<Vec<_>>().join(" ")
}

/// What the libraries of Standard Webhooks and Svix make of a secret: of [`standard_secret`], and of the secret itself,
/// should it be given to them as it stands. They read either as base64.
pub fn standard_keys(secrets: &[Secret]) -> Vec<HmacKey> {
    let decoded = secrets.iter().filter_map(|secret| BASE64.decode(secret.expose().as_bytes()).ok());
    secrets.iter().map(key).chain(decoded.map(|bytes| HmacKey::new(&bytes))).collect()
}

/// A secret signs as it stands.
pub fn key(secret: &Secret) -> HmacKey {
    HmacKey::new(secret.expose().as_bytes())
}

/// The same secret in the spelling that those libraries ask for.
pub fn standard_secret(secret: &Secret) -> String {
    format!("whsec_{}", BASE64.encode(secret.expose().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_the_specifications_bit_for_bit() {
        let keys = ["a", "b"].map(|letter| HmacKey::new(letter.repeat(64).as_bytes()));
        let at = Timestamp(1_769_853_600_999);
        let one = signature(&keys[..1], at, b"{\"a\":1}");
        // printf '1769853600.{"a":1}' | openssl dgst -sha256 -hmac aaaa…
        assert_eq!(one, "t=1769853600,v1=73de3bce218e9656de0fb7c34edc5c3d00b63b916a9c6c9dbd3ba342f8f48476");
        let two = signature(&keys, at, b"{\"a\":1}");
        assert!(two.starts_with(&one) && two.matches(",v1=").count() == 2, "{two}");
    }
}
