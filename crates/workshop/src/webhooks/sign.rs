//! What a delivery is signed with: the specification's own scheme always, Svix's headers beside it for whoever wants
//! them.
use data_encoding::{BASE64, HEXLOWER};
use kernel::{
    clock::Timestamp,
    crypto::{Secret, hmac_sha256},
};

/// `t=<seconds>,v1=<hex>` with one `v1` for each secret, the present one first. The key is the secret as it stands.
pub fn signature(secrets: &[Secret], at: Timestamp, body: &[u8]) -> String {
    let seconds = at.0.div_euclid(1000);
    let signed = [format!("{seconds}.").as_bytes(), body].concat();
    let mut header = format!("t={seconds}");
    for secret in secrets {
        header.push_str(",v1=");
        header.push_str(&HEXLOWER.encode(&hmac_sha256(secret.expose().as_bytes(), &signed)));
    }
    header
}

/// `v1,<base64>` for each secret, as Svix and Standard Webhooks have it.
pub fn standard_signature(secrets: &[Secret], id: &str, at: Timestamp, body: &[u8]) -> String {
    let signed = [format!("{id}.{}.", at.0.div_euclid(1000)).as_bytes(), body].concat();
    let each = secrets.iter().map(|secret| hmac_sha256(secret.expose().as_bytes(), &signed));
    each.map(|mac| format!("v1,{}", BASE64.encode(&mac))).collect::<Vec<_>>().join(" ")
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
        let secrets = [Secret::from("a".repeat(64)), Secret::from("b".repeat(64))];
        let at = Timestamp(1_769_853_600_999);
        let one = signature(&secrets[..1], at, b"{\"a\":1}");
        // printf '1769853600.{"a":1}' | openssl dgst -sha256 -hmac aaaa…
        assert_eq!(one, "t=1769853600,v1=73de3bce218e9656de0fb7c34edc5c3d00b63b916a9c6c9dbd3ba342f8f48476");
        let two = signature(&secrets, at, b"{\"a\":1}");
        assert!(two.starts_with(&one) && two.matches(",v1=").count() == 2, "{two}");
    }
}
