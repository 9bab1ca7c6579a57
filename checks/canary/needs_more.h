/* Uses a type that it does not include. */
uint32_t canary(void);
