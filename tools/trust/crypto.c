#include "tools/trust/crypto.h"

#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>

#define NONCE_LENGTH 12

bool crypto_random(void *ret_bytes, size_t length)
{
    return length <= INT_MAX && RAND_bytes(ret_bytes, (int)length) == 1;
}

void crypto_wipe(void *bytes, size_t length)
{
    OPENSSL_cleanse(bytes, length);
}

struct seal {
    EVP_CIPHER_CTX *context;
    uint64_t number; /* of the next chunk; 2^64 of them are more than there can be */
};

struct seal *seal_create(const uint8_t key[KEY_LENGTH], bool is_sender)
{
    struct seal *seal = calloc(1, sizeof(*seal));
    if (seal == NULL) {
        return NULL;
    }
    seal->context = EVP_CIPHER_CTX_new();
    if (seal->context == NULL ||
        EVP_CipherInit_ex(seal->context, EVP_aes_256_gcm(), NULL, key, NULL, is_sender) != 1) {
        seal_destroy(seal);
        return NULL;
    }
    return seal;
}

void seal_destroy(struct seal *seal)
{
    if (seal != NULL) {
        EVP_CIPHER_CTX_free(seal->context);
        free(seal);
    }
}

/* The nonce: four octets of zero, then the number, big-endian. */
static bool begin(struct seal *seal, bool is_sender)
{
    uint8_t nonce[NONCE_LENGTH] = {0};
    uint64_t number = seal->number++;
    for (unsigned i = 0; i < 8; i++) {
        nonce[NONCE_LENGTH - 1 - i] = (uint8_t)(number >> 8 * i);
    }
    return EVP_CipherInit_ex(seal->context, NULL, NULL, NULL, nonce, is_sender) == 1;
}

bool seal_close(struct seal *seal, const void *from, size_t length, void *to,
                uint8_t ret_tag[TAG_LENGTH])
{
    int done = 0, more = 0;
    return length <= INT_MAX && begin(seal, true) &&
           EVP_EncryptUpdate(seal->context, to, &done, from, (int)length) == 1 &&
           EVP_EncryptFinal_ex(seal->context, (uint8_t *)to + done, &more) == 1 &&
           EVP_CIPHER_CTX_ctrl(seal->context, EVP_CTRL_AEAD_GET_TAG, TAG_LENGTH, ret_tag) == 1;
}

bool seal_open(struct seal *seal, const void *from, size_t length, void *to,
               const uint8_t tag[TAG_LENGTH])
{
    int done = 0, more = 0;
    uint8_t copy[TAG_LENGTH];
    memcpy(copy, tag, TAG_LENGTH);
    return length <= INT_MAX && begin(seal, false) &&
           EVP_DecryptUpdate(seal->context, to, &done, from, (int)length) == 1 &&
           EVP_CIPHER_CTX_ctrl(seal->context, EVP_CTRL_AEAD_SET_TAG, TAG_LENGTH, copy) == 1 &&
           EVP_DecryptFinal_ex(seal->context, (uint8_t *)to + done, &more) == 1;
}
