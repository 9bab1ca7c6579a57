#include "rnic/device/device.h"
#include <stdio.h>
