#include "tools/trust/carrier.h"

#include <string.h>

static int take(BIO *bio, char *to, int wanted)
{
    struct carrier *carrier = BIO_get_data(bio);
    size_t length = wanted > 0 ? (size_t)wanted : 0;
    length = length < carrier->left ? length : carrier->left;
    BIO_clear_retry_flags(bio);
    if (length == 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    memcpy(to, carrier->from, length);
    carrier->from += length;
    carrier->left -= length;
    return (int)length;
}

static int put(BIO *bio, const char *from, int length)
{
    struct carrier *carrier = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (length < 0 || (size_t)length > carrier->room - carrier->length) {
        return -1;
    }
    memcpy(carrier->to + carrier->length, from, (size_t)length);
    carrier->length += (size_t)length;
    return length;
}

static long control(BIO *bio, int command, long number, void *pointer)
{
    return command == BIO_CTRL_FLUSH;
}

/* Made once, and never freed. */
static const BIO_METHOD *method(void)
{
    static BIO_METHOD *made;
    if (made == NULL) {
        BIO_METHOD *new = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "message");
        if (new != NULL) {
            BIO_meth_set_read(new, take);
            BIO_meth_set_write(new, put);
            BIO_meth_set_ctrl(new, control);
            made = new;
        }
    }
    return made;
}

BIO *carrier_bio(struct carrier *carrier)
{
    BIO *bio = method() != NULL ? BIO_new(method()) : NULL;
    if (bio != NULL) {
        BIO_set_data(bio, carrier);
        BIO_set_init(bio, 1);
    }
    return bio;
}
