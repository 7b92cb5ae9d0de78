//! Objects of an app for features that send them on, such as the attachments of mails.
use kernel::{Janua, fault::Result, ports::objects::ObjectError};
use tenancy::{
    apps::Environment,
    lent::{LendsObjects, Lent, LentObject, Wanted},
};

use super::model::{ObjectId, StorageObject};

pub const LENDS: &[LendsObjects] = &[LendsObjects(|janua, wanted| Box::pin(lend(janua, wanted)))];

async fn lend(janua: &Janua, wanted: Wanted<'_>) -> Result<Lent> {
    let Ok(id) = wanted.id.parse::<ObjectId>() else { return Ok(Lent::Unknown) };
    let found = StorageObject::find(&janua.db, id).await?;
    let object = found.filter(|object| {
        object.app_id == wanted.app
            && object.environment == Environment::Live
            && object.is_ready()
            && !object.is_over(janua.clock.now())
    });
    let Some((object, file)) = object.and_then(|object| object.file.clone().map(|file| (object, file))) else {
        return Ok(Lent::Unknown);
    };
    match janua.objects.read(&file, wanted.most).await {
        Ok(Some(bytes)) => {
            Ok(Lent::Object(LentObject { name: object.name, content_type: object.content_type, bytes }))
        }
        Ok(None) => Ok(Lent::Unknown),
        Err(ObjectError::TooLong) => Ok(Lent::TooLarge),
        Err(error) => Err(error.into()),
    }
}
