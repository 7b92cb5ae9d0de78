//! Somebody with an authenticator and a browser: both published, neither ours.
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use passkey::{
    authenticator::{Authenticator, UiHint, UserCheck, UserValidationMethod},
    client::{Client, DefaultClientData, WebauthnError},
    crypto::aws_lc_rs::AwsLcRsBackend,
    types::{Passkey, ctap2::Aaguid, ctap2::Ctap2Error},
};
use serde_json::Value;
use url::Url;

/// The id of a password manager everybody knows.
const BITWARDEN: [u8; 16] =
    [0xd5, 0x48, 0x82, 0x6e, 0x79, 0xb4, 0xdb, 0x40, 0xa3, 0xd8, 0x11, 0x11, 0x6f, 0x7e, 0x83, 0x49];

pub struct Holder {
    client: Client<Option<Passkey>, Finger, AwsLcRsBackend, public_suffix::PublicSuffixList, ()>,
    finger: Arc<AtomicBool>,
    origin: Url,
}

/// A sensor with the right finger on it, or just a button.
struct Finger(Arc<AtomicBool>);

#[async_trait::async_trait]
impl UserValidationMethod for Finger {
    type PasskeyItem = Passkey;

    async fn check_user<'a>(&self, _: UiHint<'a, Passkey>, _: bool, _: bool) -> Result<UserCheck, Ctap2Error> {
        Ok(UserCheck { presence: true, verification: self.0.load(SeqCst) })
    }
    fn is_verification_enabled(&self) -> Option<bool> {
        Some(true)
    }
    fn is_presence_enabled(&self) -> bool {
        true
    }
}

impl Holder {
    pub fn new() -> Self {
        let finger = Arc::new(AtomicBool::new(true));
        let mut authenticator = Authenticator::new(Aaguid(BITWARDEN), None, Finger(finger.clone()), AwsLcRsBackend);
        authenticator.set_make_credentials_with_signature_counter(true);
        let client = Client::new(authenticator).allows_insecure_localhost(true);
        Self { client, finger, origin: "http://localhost:0".parse().unwrap() }
    }

    pub fn knows_its_person(&mut self, it_does: bool) {
        self.finger.store(it_does, SeqCst);
    }

    pub async fn make(&mut self, options: Value) -> Result<Value, WebauthnError> {
        let options = serde_json::from_value(options).unwrap();
        let made = self.client.register(&self.origin, options, DefaultClientData).await?;
        Ok(serde_json::to_value(made).unwrap())
    }

    pub async fn sign(&mut self, mut options: Value) -> Result<Value, WebauthnError> {
        // To a browser an empty list is no list; to this one it is a list without the key.
        options["publicKey"].as_object_mut().unwrap().remove("allowCredentials");
        let options = serde_json::from_value(options).unwrap();
        let signed = self.client.authenticate(&self.origin, options, DefaultClientData).await?;
        Ok(serde_json::to_value(signed).unwrap())
    }
}
