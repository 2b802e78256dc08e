#pragma once

// A function of the driver API by name; of a name that is not known, one that answers "not supported".
void* driver_function(const char* name);
