// What the library exports.
#pragma once

#define API extern "C" __attribute__((visibility("default")))
