//! Uploads of pictures: a URL to upload to, a check of the uploaded bytes, and the published picture.
//!
//! The uploaded bytes are never published. They are decoded and encoded again ([`picture`]), and only the result gets
//! a public URL. The table holds the open uploads. Each ends with one conditional statement, in the transaction that
//! publishes the picture. When clients upload to this server, that happens in their request ([`files`]). When they
//! upload to a bucket, a job checks for the file ([`look`]).
mod files;
mod look;
mod model;
mod picture;

use std::{collections::BTreeMap, pin::Pin, time::Duration};

use db::Tx;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Code, Fault, Result},
    http::Routes,
    id::Id,
    jobs::Jobs,
    ports::objects::Key,
    transact,
};
use look::{Discard, Look};
use model::UploadId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    events::By,
    ids::{OrgId, Role},
    orgs::Membership,
};

pub use look::sweep;
pub use model::{Subject, Upload};
pub use picture::{PictureType, Studio};

/// How long an upload URL is valid.
const LIFE: Duration = Duration::from_mins(10);
/// In bytes.
pub const LARGEST: usize = 5 * 1024 * 1024;
/// How many upload URLs for one picture may be valid at once: each takes room in the store.
const MOST_OPEN: i64 = 10;

pub const TOO_MANY_UPLOADS: Code =
    Code::new(429, "too_many_uploads", "Too many uploads are open. Use one of them, or wait.");
pub const UPLOAD_REFUSED: Code =
    Code::new(403, "upload_refused", "This upload URL is invalid, has expired or was already used.");

/// Pictures of one kind of things. The feature that shows them declares it.
#[derive(Clone, Copy)]
pub struct PicturesOf {
    /// Stored with each upload: it never changes.
    pub kind: &'static str,
    /// Puts the URL of a picture into its place, with the event; `false` when there is no such thing any more, or when the
    /// uploader may not.
    pub show: Show,
}

pub type Show = for<'a> fn(
    &'a mut Tx,
    &'a Janua,
    &'a Upload,
    &'a str,
) -> Pin<Box<dyn Future<Output = db::Result<bool>> + Send + 'a>>;

impl PicturesOf {
    pub fn of<T>(self, id: Id<T>) -> Subject {
        Subject { kind: self.kind.to_owned(), id: id.to_string() }
    }
}

pub fn routes() -> Routes {
    files::routes()
}

pub fn jobs() -> Jobs {
    Jobs::new().on::<Look>().on::<Discard>()
}

/// The file to upload.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Wish {
    pub content_type: PictureType,
    /// In bytes, exactly.
    #[schemars(range(min = 1, max = 5_242_880))]
    pub size: u32,
}

/// How to upload it.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Offer {
    /// The upload URL for one PUT. It contains its own authorization: keep it secret.
    pub upload_url: String,
    pub method: &'static str,
    /// Headers that must come along just so.
    pub headers: BTreeMap<&'static str, &'static str>,
    pub expires_at: Timestamp,
    /// Where the picture will be, checked and at most 512 pixels wide and high.
    pub picture_url: String,
}

/// Creates a URL to upload a picture to.
pub async fn open(janua: &Janua, subject: Subject, by: By, wish: &Wish) -> Result<Offer> {
    let now = janua.clock.now();
    let upload = Upload {
        id: UploadId::new(&janua.entropy, now),
        subject,
        incoming_key: Key::new("incoming", "", &janua.entropy),
        picture_key: Key::new("pictures", wish.content_type.shown_as().extension(), &janua.entropy),
        content_type: wish.content_type,
        length: wish.size,
        by,
        expires_at: now.plus(LIFE),
    };
    transact!(janua, async |tx| {
        if Upload::count_open(tx, &upload.subject, now).await? >= MOST_OPEN {
            return Err(Fault::from(TOO_MANY_UPLOADS).retry_after(Duration::from_mins(1)));
        }
        upload.insert(tx).await?;
        if !janua.objects.is_put_here() {
            look::again(tx, janua, upload.id, 0).await?;
        }
        Ok(())
    })?;
    Ok(Offer {
        upload_url: janua.objects.signed_put(&upload.slot()),
        method: "PUT",
        headers: BTreeMap::from([("Content-Type", upload.content_type.name())]),
        expires_at: upload.expires_at,
        picture_url: janua.objects.public_url(&upload.picture_key),
    })
}

/// Takes a file that came by another way than its upload URL, such as the form of a page, wherever objects are kept. Whoever
/// knows the URL may upload; `bytes` are as long as was announced for it.
pub async fn receive(janua: &Janua, upload_url: &str, bytes: Vec<u8>) -> Result<()> {
    let path = upload_url.split('?').next().unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    take(janua, &Key::parse(&format!("incoming/{name}")).ok_or(UPLOAD_REFUSED)?, bytes).await
}

/// Takes the file of an open upload.
async fn take(janua: &Janua, incoming: &Key, bytes: Vec<u8>) -> Result<()> {
    let upload = Upload::begin(&janua.db, incoming, janua.clock.now()).await?.ok_or(UPLOAD_REFUSED)?;
    let outcome = finish(janua, &upload, bytes).await;
    match &outcome {
        Ok(()) => {}
        Err(fault) if fault.code().status < 500 => forget(janua, &upload).await?,
        // The store or the database is away: the same file may be put again.
        Err(_) => upload.release(&janua.db).await?,
    }
    outcome
}

/// Shows what was uploaded, drawn anew. Nothing changes when it is no picture, or when the upload is not open any more.
async fn finish(janua: &Janua, upload: &Upload, bytes: Vec<u8>) -> Result<()> {
    let drawn = picture::draw_anew(janua, bytes, upload.content_type).await?;
    let key = &upload.picture_key;
    janua.objects.write(key, upload.content_type.shown_as().content_type(), &drawn).await?;
    let url = janua.objects.public_url(key);
    transact!(janua, async |tx| {
        let now = janua.clock.now();
        if !upload.end(tx, now).await? || !show(tx, janua, upload, &url).await? {
            return Err(UPLOAD_REFUSED.into());
        }
        let before = upload.take_previous(tx).await?.into_iter().map(|previous| previous.picture_key);
        look::discard(tx, janua, now, before.collect()).await?;
        Ok(look::discard_incoming(tx, janua, upload).await?)
    })
}

/// Writes the picture into its row; `false` when the row is gone, or the uploader has lost the right to it.
async fn show(tx: &mut Tx, janua: &Janua, upload: &Upload, url: &str) -> db::Result<bool> {
    let declared = janua.declared::<PicturesOf>().iter().find(|pictures| pictures.kind == upload.subject.kind);
    match declared {
        Some(pictures) => (pictures.show)(tx, janua, upload, url).await,
        None => Ok(false),
    }
}

/// Whether the user who began the upload is still an admin of the organization.
pub async fn may_still(tx: &mut Tx, upload: &Upload, org: OrgId) -> db::Result<bool> {
    let Some(actor) = upload.by.actor else { return Ok(false) };
    let membership = Membership::of(&mut *tx, org, actor).await?;
    Ok(membership.is_some_and(|membership| membership.role >= Role::Admin))
}

/// Gives up an upload that came to nothing. One that another run has ended stays as it is: the picture is shown.
async fn forget(janua: &Janua, upload: &Upload) -> db::Result<()> {
    db::transact!(janua.db, async |tx| {
        if upload.delete(tx).await? || !upload.exists(tx).await? {
            look::discard_all(tx, janua, upload).await?;
        }
        Ok(())
    })
}

/// Deletes the pictures of a deleted account, organization or app.
pub async fn subject_gone(tx: &mut Tx, janua: &Janua, subject: &Subject) -> db::Result<()> {
    for upload in Upload::take_all(tx, subject).await? {
        look::discard_all(tx, janua, &upload).await?;
    }
    Ok(())
}
