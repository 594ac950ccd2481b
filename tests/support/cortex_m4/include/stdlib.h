#pragma once

long atol(const char *digits);
