//! Reading a certificate that was issued.
use kernel::{Janua, clock::Timestamp};
use rustls::{
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject as _},
    sign::CertifiedKey,
};
use std::time::Duration;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use super::model::Issued;

/// Nothing is renewed more often than this, however short its life or wrong a clock.
const SHORTEST: Duration = Duration::from_hours(1);

/// What was issued, if it is a certificate of the name and of our key.
pub fn read(janua: &Janua, name: &str, chain: String, key: &[u8]) -> Result<Issued, String> {
    certified(&chain, key)?;
    let leaf = CertificateDer::from_pem_slice(chain.as_bytes()).map_err(|error| error.to_string())?;
    let (_, parsed) = X509Certificate::from_der(&leaf).map_err(|error| error.to_string())?;
    let names = parsed.subject_alternative_name().ok().flatten();
    let is_of_name = names.is_some_and(|names| {
        let is_it =
            |one: &GeneralName<'_>| matches!(one, GeneralName::DNSName(dns) if dns.eq_ignore_ascii_case(name));
        names.value.general_names.iter().any(is_it)
    });
    if !is_of_name {
        return Err("the certificate authority issued a certificate of another name".into());
    }
    let issuer = parsed.issuer().iter_common_name().next().and_then(|name| name.as_str().ok());
    let issuer = issuer.map_or_else(|| parsed.issuer().to_string(), str::to_owned);
    let not_before = Timestamp(parsed.validity().not_before.timestamp().saturating_mul(1000));
    let not_after = Timestamp(parsed.validity().not_after.timestamp().saturating_mul(1000));
    let renew_at = renewal(not_before, not_after, janua.entropy.up_to(1000)).max(janua.clock.now().plus(SHORTEST));
    let issuer = issuer.chars().take(200).collect();
    Ok(Issued { chain, issuer, not_before, not_after, renew_at })
}

/// Two thirds of a life, give or take a twentieth of it; `chance` is one of a thousand.
fn renewal(not_before: Timestamp, not_after: Timestamp, chance: u64) -> Timestamp {
    let life = not_after.since(not_before);
    let share = 2.0 / 3.0 - 0.05 + f64::from(u32::try_from(chance).unwrap_or(500)) / 10_000.0;
    not_before.plus(life.mul_f64(share))
}

/// A chain with its key, as TLS takes it.
pub fn certified(chain: &str, key: &[u8]) -> Result<CertifiedKey, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain.as_bytes()).collect();
    let chain = chain.map_err(|error| format!("the certificate cannot be read: {error}"))?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.to_vec()));
    let certified = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider());
    certified.map_err(|error| format!("the certificate does not fit its key: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_renewed_after_two_thirds_of_its_life() {
        let (start, day) = (Timestamp(0), Duration::from_hours(24));
        for days in [6_u32, 45, 90] {
            let end = start.plus(day * days);
            let (early, late) = (renewal(start, end, 0), renewal(start, end, 1000));
            assert!(
                early >= start.plus((day * days).mul_f64(0.61)) && late <= start.plus((day * days).mul_f64(0.72))
            );
            assert!(early < late);
        }
    }
}
